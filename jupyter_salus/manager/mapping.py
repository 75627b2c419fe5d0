"""The server's manager of all kernels: it holds the link to the backend, and knows what their notebooks are called."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from jupyter_server._tz import utcnow
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado import web
from traitlets import Bool, Unicode, default
from traitlets.config import LoggingConfigurable

from ..errors import SalusError
from .kernel import SalusKernelManagerMixin
from .link import Link
from .names import Notebook, of_sessions
from .opening import open_link

#: States of a session whose cell waits for the device: not idle, whatever the kernel says of itself.
WAITING = ("waiting", "restoring")


class SalusManagerMixin(LoggingConfigurable):
    """Put before an `AsyncMappingKernelManager` or a class derived from it."""

    salus_enabled = Bool(True, config=True, help="Whether kernels are sessions of the Salus backend.")
    salus_socket = Unicode(
        "",
        config=True,
        help="The backend's socket. Empty: JUPYTER_SALUS_SOCKET, else /run/jupyter-salus/backend.sock where that "
        "directory is, else the user's own backend, which is started when it isn't there.",
    )

    #: The link to the backend; None where kernels run as plain ones.
    salus_link: Link | None = None
    #: Whether a cell of this server waits for the device now; set by the server's extension, which is told.
    salus_waits: Callable[[], bool] | None = None

    def __init__(self, **kwargs: Any) -> None:
        _refuse_gateway(kwargs.get("parent"))
        super().__init__(**kwargs)
        # The connection is made now and in the background, so that the first kernel finds the backend running.
        self.salus_link = open_link(self.salus_enabled, self.salus_socket, self.log)
        self._salus_tasks: set[asyncio.Task[Any]] = set()
        self._salus_check_class()

    @default("kernel_manager_class")
    def _salus_kernel_manager_class(self) -> str:
        return "jupyter_salus.manager.SalusKernelManager"

    @property
    def last_kernel_activity(self) -> datetime:
        """When a kernel did something for its user last: now, while a cell waits. A server asks for it before it ends for
        want of activity, and tells it to its hub."""
        if self.salus_waits is not None and self.salus_waits():
            self._salus_activity = utcnow()
        return self._salus_activity

    @last_kernel_activity.setter
    def last_kernel_activity(self, at: datetime) -> None:
        self._salus_activity = at

    def update_env(self, *, kernel_id: str, env: dict[str, str]) -> None:
        """Called by the server's sessions on a rename or move: the backend hears of it, too."""
        super().update_env(kernel_id=kernel_id, env=env)  # type: ignore[misc]
        try:
            task = asyncio.get_running_loop().create_task(self.salus_describe())
        except RuntimeError:
            return  # Without a loop nobody renames anything in a server.
        self._salus_tasks.add(task)
        task.add_done_callback(self._salus_described)

    def interrupt_kernel(self, kernel_id: str) -> Awaitable[None]:
        """As the base class; a kernel that isn't started yet is answered 409, not 500."""
        kernel = self.get_kernel(kernel_id)  # type: ignore[attr-defined]
        if not kernel.ready.done():
            raise web.HTTPError(409, f"cannot interrupt kernel {kernel_id}: it is still starting or stopping")
        return super().interrupt_kernel(kernel_id)  # type: ignore[misc]

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """As the base class, but a kernel whose cell waits for the device is active, with `cull_busy` too."""
        if await self._salus_waits(kernel_id):
            self.salus_active(kernel_id)
            return
        await super().cull_kernel_if_idle(kernel_id)  # type: ignore[misc]

    def salus_active(self, kernel_id: str) -> None:
        """The kernel does something for its user: what culls kernels, or the whole server, is to see it."""
        kernel = self._kernels.get(kernel_id)  # type: ignore[attr-defined]
        if kernel is not None:
            self.last_kernel_activity = kernel.last_activity = utcnow()

    async def salus_notebooks(self) -> dict[str, Notebook]:
        """The notebooks of this server's kernels, by kernel id, as the server's sessions name them now."""
        sessions = getattr(self.parent, "session_manager", None)
        return {} if sessions is None else await of_sessions(sessions)

    async def salus_describe(self) -> dict[str, Notebook]:
        """Tell the backend the names that changed, and return all. Called after a rename, and by the server's feed."""
        notebooks = await self.salus_notebooks()
        for kernel_id, notebook in notebooks.items():
            kernel = self._kernels.get(kernel_id)  # type: ignore[attr-defined]
            if isinstance(kernel, SalusKernelManagerMixin):
                kernel.salus_described(notebook)
        return notebooks

    def _salus_described(self, task: asyncio.Task[Any]) -> None:
        self._salus_tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.log.error("Salus: cannot read the names of the notebooks", exc_info=error)

    async def _salus_waits(self, kernel_id: str) -> bool:
        kernel = self._kernels.get(kernel_id)  # type: ignore[attr-defined]
        link = self.salus_link
        if link is None or not link.connected or kernel is None or not getattr(kernel, "last_activity", None):
            return False
        spec = kernel.kernel_spec
        timeout = spec.metadata.get("cull_idle_timeout", self.cull_idle_timeout)  # type: ignore[attr-defined]
        if utcnow() - kernel.last_activity <= timedelta(seconds=timeout):
            return False
        try:
            rows = (await link.state()).get("sessions", [])
        except SalusError as error:
            self.log.debug("Salus: cannot ask whether kernel %s waits: %s", kernel_id, error)
            return False
        return any(row.get("id") == kernel_id and row.get("state") in WAITING for row in rows)

    def _salus_check_class(self) -> None:
        """A user's own setting wins, and is told what it costs."""
        module, _, name = self.kernel_manager_class.rpartition(".")  # type: ignore[attr-defined]
        chosen = getattr(importlib.import_module(module), name)
        if not issubclass(chosen, SalusKernelManagerMixin):
            self.log.warning(
                "Salus: kernel_manager_class is set to %s.%s, so kernels run as plain ones; "
                "a class that derives from jupyter_salus.manager.SalusKernelManagerMixin as well keeps both",
                module,
                name,
            )


class Manager(SalusManagerMixin, AsyncMappingKernelManager):  # type: ignore[misc]
    """`--ServerApp.kernel_manager_class=jupyter_salus.Manager`: kernels of this server take turns on the device."""


def _refuse_gateway(server: Any) -> None:
    """End the server with one sentence: a gateway starts the kernels on another machine, and wants a manager of its own."""
    gateway = getattr(server, "gateway_config", None)
    if gateway is None or not gateway.gateway_enabled:
        return
    server.log.critical(
        "cannot use jupyter_salus.Manager together with the gateway %s: its kernels are started by the gateway; "
        "leave out --ServerApp.kernel_manager_class here, and set it on the gateway's server",
        gateway.url or gateway.ws_url,
    )
    server.exit(1)
