"""Kernels of a given interpreter for the corpus: a plain one, and one that is a session of a backend."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from jupyter_salus.manager import NotebookKernelManager
from tests.corpus.cells import Step
from tests.corpus.conversation import Conversation, Said
from tests.manager.running import PATIENCE_S


@asynccontextmanager
async def kernel(python: str, folder: Path, socket: str | None) -> AsyncIterator[Any]:
    """A kernel's manager; governed if there is a socket. `folder` is its home: history, profile, files.

    A cell finds ipywidgets, matplotlib and numpy at the end of its path: they are those of these tests.
    """
    argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    connection = str(folder / "connection.json")
    manager: Any
    if socket is None:
        manager = AsyncKernelManager(kernel_name="python3", connection_file=connection)
    else:
        manager = NotebookKernelManager(kernel_name="python3", connection_file=connection, salus_socket=socket)
    manager._kernel_spec = KernelSpec(argv=argv, display_name="corpus", language="python")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment.update(
        IPYTHONDIR=str(folder / "ipython"),
        MPLBACKEND="module://matplotlib_inline.backend_inline",
        PYTHONHASHSEED="0",
        SALUS_CORPUS_PACKAGES=sysconfig.get_path("purelib"),
    )
    (folder / "work").mkdir(parents=True)
    await manager.start_kernel(env=environment, cwd=str(folder / "work"))
    try:
        yield manager
    finally:
        await manager.shutdown_kernel(now=True)


async def converse(manager: Any, version: tuple[int, ...], steps: list[Step]) -> list[Said]:
    """The steps done with this kernel."""
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=PATIENCE_S)
        return await Conversation(client, version).hold(steps)
    finally:
        client.stop_channels()
