"""Managers in this process, and the kernels that they started: for what has no way in by a server's REST."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from traitlets.config import Config

from jupyter_salus.manager import Manager
from tests.manager.running import PATIENCE_S


class Kernels:
    """Ends what it started with `end`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: list[Manager] = []

    def manager(self, **settings: Any) -> Manager:
        """A Manager without a server. Its address is one that nobody serves, unless `salus_socket` says another."""
        settings.setdefault("salus_socket", str(self._directory / "nobody.sock"))
        made = Manager(
            kernel_spec_manager=KernelSpecManager(),
            connection_dir=str(self._directory),
            root_dir=str(self._directory),
            log=logging.getLogger("jupyter_salus.tests"),
            config=Config(Manager=settings),
        )
        self._made.append(made)
        return made

    async def run(self, manager: Manager, kernel_id: str, code: str) -> str:
        """The text of an expression's value."""
        client: Any = manager.get_kernel(kernel_id).client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=PATIENCE_S)
            reply = await client.execute_interactive(
                "", user_expressions={"value": code}, timeout=PATIENCE_S, output_hook=lambda _: None
            )
            return str(reply["content"]["user_expressions"]["value"]["data"]["text/plain"])
        finally:
            client.stop_channels()

    def pid(self, manager: Manager, kernel_id: str) -> int:
        """The pid of a kernel's process."""
        provisioner: Any = manager.get_kernel(kernel_id).provisioner
        return int(provisioner.pid)

    async def end(self) -> None:
        """End all kernels."""
        for manager in self._made:
            await manager.shutdown_all(now=True)
