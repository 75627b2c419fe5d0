"""`salus-provisioner`: kernels of programs that never heard of `Manager`, such as nbconvert, papermill or jupyter_scheduler.

Chosen by a kernelspec's `metadata.kernel_provisioner`, or for all by `JUPYTER_DEFAULT_PROVISIONER_NAME=salus-provisioner`.
Under one of our own kernel managers it does what the local provisioner does, since those announce and inject themselves.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from .enrolment import Enrolment
from .injection import Door, door_of, injected, place, prepend_boot_directory, variables, variables_of_guard
from .kernel import SalusKernelManagerMixin
from .link import Link
from .names import Notebook, at_start
from .opening import open_link
from .preload import Preload, preload


class SalusProvisioner(LocalProvisioner):
    """Starts the kernel as a local process and as a session of the backend."""

    salus_enrolment: Enrolment | None = None
    _salus_link: Link | None = None
    _salus_door: Door | None = None
    _salus_preload = Preload()

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Announce the kernel, and put the guest into its command line and environment."""
        kwargs = await super().pre_launch(**kwargs)
        if isinstance(self.parent, SalusKernelManagerMixin):
            return kwargs
        try:
            await self._announce(kwargs)
        except Exception:
            self.log.exception("Salus: cannot announce kernel %s; it starts as a plain one", self.kernel_id)
        return kwargs

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """As the local provisioner; what can't be launched is no session."""
        try:
            return await super().launch_kernel(cmd, **kwargs)
        except BaseException:
            self._end()
            raise

    async def post_launch(self, **kwargs: Any) -> None:
        """Tell the backend the process, or why the kernel isn't managed."""
        await super().post_launch(**kwargs)
        link, enrolment, door = self._salus_link, self.salus_enrolment, self._salus_door
        if link is not None and enrolment is not None and door is not None:
            enrolment.pid = self.pid
            # Whoever starts kernels this way executes cells at once, so there is no idle moment for an offer.
            guarded = door.kind == "extension" or self._salus_preload.guarded
            enrolment.unmanaged = None if guarded else door.reason
            enrolment.unguarded = self._salus_preload.reason
            link.touch(enrolment)

    async def send_signal(self, signum: int) -> None:
        """Any signal that ends a cell ends the session's waits, too."""
        if self._salus_link is not None and self.salus_enrolment is not None and signum != 0:
            self._salus_link.interrupt(self.salus_enrolment.session)
        await super().send_signal(signum)

    async def cleanup(self, restart: bool = False) -> None:
        """End the session with the kernel."""
        if not restart:
            self._end()
        await super().cleanup(restart=restart)

    async def _announce(self, kwargs: dict[str, Any]) -> None:
        self._salus_link = link = open_link(True, "", self.log)
        if link is None:
            return
        environment: dict[str, str] = kwargs.setdefault("env", dict(os.environ))
        enrolment = self.salus_enrolment
        if enrolment is None:
            enrolment = self.salus_enrolment = Enrolment(self.kernel_id, self._notebook(environment))
        enrolment.begin()
        self._salus_door = door = door_of(kwargs["cmd"], self.kernel_spec.language)
        self._salus_preload = await asyncio.to_thread(preload, kwargs["cmd"], dict(environment))
        environment.update(self._salus_preload.variables)
        if door.kind == "extension":
            notebook = enrolment.notebook
            environment.update(
                variables(
                    link.address.path,
                    enrolment.session,
                    enrolment.token,
                    enrolment.incarnation,
                    self.kernel_id,
                    notebook.name,
                    notebook.path,
                )
            )
            prepend_boot_directory(environment)
            kwargs["cmd"] = injected(kwargs["cmd"])
        elif self._salus_preload.guarded:
            environment.update(variables_of_guard(link.address.path, enrolment.session))
        if not await link.bring(enrolment):
            self.log.warning("Salus: kernel %s starts as a plain one for now: %s", self.kernel_id, link.problem)
        else:
            place(environment, enrolment.device)

    def _notebook(self, environment: dict[str, str]) -> Notebook:
        """nbclient tells no name: the program that starts the kernel stands in for it."""
        if environment.get("JPY_SESSION_NAME"):
            return at_start(environment, None, self.kernel_id, self.kernel_spec.display_name)
        program = sys.argv[0]
        if os.path.basename(program) == "__main__.py":  # started by `python -m`: the package's name says more
            program = os.path.dirname(program)
        return Notebook(f"{os.path.basename(program) or 'python'} {self.kernel_id[:8]}")

    def _end(self) -> None:
        if self._salus_link is not None and self.salus_enrolment is not None and not self.salus_enrolment.ended:
            self.salus_enrolment.ended = True
            self._salus_link.touch(self.salus_enrolment)
