"""One kernel and its session with the backend: announced before each launch, described by what came of it, ended.

jupyter_client's public methods are aliases that restarts, automatic restarts and shutdowns go past; what they all call are
the `_async_…` hooks, so the work is done there. A hook of ours never raises and never waits longer than `PATIENCE_S`: a
kernel that can't be announced starts as a plain one, and the log says why.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_server.services.kernels.kernelmanager import ServerKernelManager
from traitlets import Bool, Float, Unicode, observe
from traitlets.config import LoggingConfigurable

from ..errors import SalusError
from .enrolment import Enrolment
from .injection import Door, door_of, injected, place, prepend_boot_directory, variables, variables_of_guard
from .link import Link
from .names import Notebook, at_start
from .offer import UNANSWERED, offer
from .opening import open_link
from .preload import Preload, preload
from .readiness import answers

#: How long an interrupt waits for a kernel that is still starting, in seconds.
STARTING_S = 30.0


class SalusKernelManagerMixin(LoggingConfigurable):
    """Put before an asyncio kernel manager class, `AsyncKernelManager` or one derived from it.

    With a `SalusManagerMixin` as its parent it uses that one's connection and knowledge of names, else its own settings.
    """

    salus_enabled = Bool(True, config=True, help="Whether this kernel is a session of the Salus backend.")
    salus_socket = Unicode("", config=True, help="The backend's socket; empty: found as the documentation says.")
    salus_name = Unicode("", config=True, help="What the session is called; empty: after its notebook.")
    salus_path = Unicode("", config=True, help="The notebook's path, as shown; empty: as the server knows it.")
    salus_guard = Bool(
        True,
        config=True,
        help="Whether the guard is preloaded on a host with a GPU. Without it a kernel's memory stays on the device and "
        "its turns end at boundaries only. JUPYTER_SALUS_GUARD=off in a kernelspec's environment does the same for one.",
    )
    salus_unheard_s = Float(
        5.0,
        config=True,
        help="Seconds after a kernel's first answer after which its guest is offered to it, where none was heard of: a guest "
        "says hello before its kernel answers anybody, unless something on the way, such as sudo, dropped the environment.",
    )
    salus_priority = Unicode("", config=True, help="high, normal or low; empty: the backend's default.")

    #: The session with the backend; None for a kernel that has none.
    salus_enrolment: Enrolment | None = None

    _salus_door: Door | None = None
    _salus_preload = Preload()
    _salus_up = False
    _salus_offering: asyncio.Task[None] | None = None

    # ---- jupyter_client's hooks ----------------------------------------------------------------------------------------

    async def _async_pre_start_kernel(self, **kw: Any) -> tuple[list[str], dict[str, Any]]:
        command, kw = await super()._async_pre_start_kernel(**kw)  # type: ignore[misc]
        self._salus_up = False
        try:
            # After super(), so that it isn't saved in the launch arguments: each launch gets a token of its own.
            command = await self._salus_announce(command, kw)
        except Exception:
            self.log.exception("Salus: cannot announce kernel %s; it starts as a plain one", self._salus_id)
        return command, kw

    async def _async_launch_kernel(self, kernel_cmd: list[str], **kw: Any) -> None:
        try:
            await super()._async_launch_kernel(kernel_cmd, **kw)  # type: ignore[misc]
        except BaseException:
            self._salus_end()
            raise

    async def _async_post_start_kernel(self, **kw: Any) -> None:
        await super()._async_post_start_kernel(**kw)  # type: ignore[misc]
        try:
            self._salus_launched()
        except Exception:
            self.log.exception("Salus: cannot tell the backend of kernel %s", self._salus_id)

    async def _async_cleanup_resources(self, restart: bool = False) -> None:
        if not restart:
            self._salus_end()
        await super()._async_cleanup_resources(restart=restart)  # type: ignore[misc]

    async def _async_interrupt_kernel(self) -> None:
        """On the way to a shutdown: a waiting cell ends, so that the kernel can go in its own way."""
        self._salus_interrupt()
        await super()._async_interrupt_kernel()  # type: ignore[misc]

    async def interrupt_kernel(self, *args: Any, **kw: Any) -> None:
        """End the session's waits by way of the backend, and interrupt the kernel once it can take that."""
        self._salus_interrupt()
        await self._salus_until_up()
        await super().interrupt_kernel(*args, **kw)  # type: ignore[misc]

    # ---- what they do --------------------------------------------------------------------------------------------------

    @property
    def _salus_id(self) -> str:
        return str(getattr(self, "kernel_id", "") or "")

    @property
    def _salus_link(self) -> Link | None:
        parent: Any = self.parent
        if hasattr(parent, "salus_link"):
            link: Link | None = parent.salus_link
            return link if self.salus_enabled else None
        return open_link(self.salus_enabled, self.salus_socket, self.log)

    def _salus_notebook(self, environment: dict[str, str]) -> Notebook:
        known = at_start(environment, getattr(self.parent, "root_dir", None), self._salus_id, self.kernel_name)  # type: ignore[attr-defined]
        return Notebook(self.salus_name or known.name, self.salus_path or known.path)

    async def _salus_announce(self, command: list[str], kw: dict[str, Any]) -> list[str]:
        link = self._salus_link
        if link is None:
            return command
        environment: dict[str, str] = kw.setdefault("env", dict(os.environ))
        enrolment = self.salus_enrolment
        if enrolment is None:
            enrolment = Enrolment(self._salus_id, self._salus_notebook(environment), self.salus_priority or None)
            self.salus_enrolment = enrolment
        enrolment.begin()
        spec = self.kernel_spec  # type: ignore[attr-defined]
        launched_here = isinstance(self.provisioner, LocalProvisioner)  # type: ignore[attr-defined]
        self._salus_door = door = door_of(command, spec.language if spec else "", launched_here)
        # In a thread: an interpreter met for the first time is started once.
        self._salus_preload = Preload()
        if launched_here:
            self._salus_preload = await asyncio.to_thread(preload, command, dict(environment), self.salus_guard)
        environment.update(self._salus_preload.variables)
        if door.kind != "closed":
            environment.update(self._salus_variables(link, enrolment))
        elif self._salus_preload.guarded:
            environment.update(variables_of_guard(link.address.path, enrolment.session))
        if door.kind == "extension":
            prepend_boot_directory(environment)
            command = injected(command)
        if not await link.bring(enrolment):
            self.log.warning("Salus: kernel %s starts as a plain one for now: %s", self._salus_id, link.problem)
        else:
            place(environment, enrolment.device)
        return command

    def _salus_variables(self, link: Link, enrolment: Enrolment) -> dict[str, str]:
        notebook = enrolment.notebook
        return dict(
            variables(
                link.address.path,
                enrolment.session,
                enrolment.token,
                enrolment.incarnation,
                self._salus_id,
                notebook.name,
                notebook.path,
            )
        )

    def _salus_launched(self) -> None:
        link, enrolment, door = self._salus_link, self.salus_enrolment, self._salus_door
        if link is None or enrolment is None or door is None:
            return
        enrolment.pid = getattr(self.provisioner, "pid", None)  # type: ignore[attr-defined]
        # A kernel that no guest can be put into is governed by the guard alone, where there is one.
        enrolment.unmanaged = door.reason if door.kind == "closed" and not self._salus_preload.guarded else None
        enrolment.unguarded = self._salus_preload.reason
        link.touch(enrolment)
        if door.kind == "offer":
            self._salus_replace_offering(self._salus_offer(link, enrolment, door.reason or ""))
        restarter = getattr(self, "_restarter", None)
        if restarter is not None and self._salus_end not in restarter.callbacks["dead"]:
            # A kernel that is given up after too many automatic restarts is never cleaned up.
            restarter.add_callback(self._salus_end, "dead")

    def _salus_replace_offering(self, work: Coroutine[Any, Any, None]) -> None:
        if self._salus_offering is not None:
            self._salus_offering.cancel()
        self._salus_offering = asyncio.ensure_future(work)

    async def _salus_offer(self, link: Link, enrolment: Enrolment, reason: str, while_busy: bool = True) -> None:
        """`while_busy`: a kernel that is too busy to answer counts as one that isn't managed."""
        incarnation = enrolment.incarnation
        try:
            refused = await offer(self, self._salus_variables(link, enrolment))  # type: ignore[arg-type]
        except Exception as error:
            refused = f"{type(error).__name__}: {error}"
        # Where the guard is in the kernel, that governs it without a guest as well.
        busy = not while_busy and refused is not None and refused.startswith(UNANSWERED)
        alone = refused is not None and not busy and not self._salus_preload.guarded
        if alone and enrolment.incarnation == incarnation and not enrolment.ended:
            enrolment.unmanaged = f"{reason}, and when asked: {refused}"
            self.log.info("Salus: kernel %s isn't managed: %s", self._salus_id, enrolment.unmanaged)
            link.touch(enrolment)

    def _salus_end(self) -> None:
        if self._salus_offering is not None:
            self._salus_offering.cancel()
            self._salus_offering = None
        link, enrolment = self._salus_link, self.salus_enrolment
        if link is None or enrolment is None or enrolment.ended:
            return
        enrolment.ended = True
        link.touch(enrolment)

    def _salus_interrupt(self) -> None:
        link, enrolment = self._salus_link, self.salus_enrolment
        if link is not None and enrolment is not None:
            link.interrupt(enrolment.session)

    async def _salus_until_up(self) -> None:
        if self._salus_up or self._salus_door is None or self._salus_door.kind != "extension" or not self.has_kernel:  # type: ignore[attr-defined]
            return
        try:
            self._salus_up = await answers(self, STARTING_S)  # type: ignore[arg-type]
        except Exception:
            self.log.exception("Salus: cannot ask kernel %s whether it is up", self._salus_id)

    def salus_described(self, notebook: Notebook) -> None:
        """The notebook was renamed or moved, or its session is there now; called by the Manager."""
        link, enrolment = self._salus_link, self.salus_enrolment
        if link is not None and enrolment is not None and enrolment.notebook != notebook:
            enrolment.notebook = notebook
            link.touch(enrolment)


class SalusKernelManager(SalusKernelManagerMixin, ServerKernelManager):  # type: ignore[misc]
    """The class for one kernel of `Manager`."""

    @observe("execution_state")
    def _salus_seen(self, change: dict[str, Any]) -> None:
        # What a kernel says of itself on iopub, it says with its signal handlers in place.
        if change["new"] not in ("busy", "idle"):
            return
        first, self._salus_up = not self._salus_up, True
        link, enrolment, door = self._salus_link, self.salus_enrolment, self._salus_door
        if first and link is not None and enrolment is not None and door is not None and door.kind == "extension":
            self._salus_replace_offering(self._salus_look_for_guest(link, enrolment))

    async def _salus_look_for_guest(self, link: Link, enrolment: Enrolment) -> None:
        """Something on the way may have dropped the environment: a container, `sudo`, a script. Then the guest is offered."""
        incarnation = enrolment.incarnation
        await asyncio.sleep(self.salus_unheard_s)
        try:
            rows = (await link.state()).get("sessions", [])
        except SalusError:
            return  # without a backend there is nobody to be heard by
        row = next((one for one in rows if one.get("id") == enrolment.session), None)
        if row is None or row.get("incarnation") != incarnation or row.get("persistent_bytes") or row.get("cell_id"):
            return
        if row.get("memory_mode") not in ("blocks", "regions"):
            await self._salus_offer(link, enrolment, "its guest never said hello", while_busy=False)


class NotebookKernelManager(SalusKernelManagerMixin, AsyncKernelManager):  # type: ignore[misc]
    """For nbclient, one for each notebook, without a server."""

    async def cleanup_resources(self, restart: bool = False) -> None:  # type: ignore[override]
        """Free what the kernel used; nbclient calls it for a kernel that died, too."""
        await self._async_cleanup_resources(restart=restart)
