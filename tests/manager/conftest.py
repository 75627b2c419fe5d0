"""Backends and servers for these tests; what is costly to start is shared. Tests tell their own sessions by their ids."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from jupyter_salus.manager.link import close_links
from tests.manager.kernels import Kernels
from tests.manager.kernelspecs import write_kernelspecs, write_profile
from tests.manager.running import Backend, JupyterServer


def _short_directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="js", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def module_tmp() -> Iterator[Path]:
    """A short directory for what the tests of a module share."""
    yield from _short_directory()


@pytest.fixture(scope="session")
def shared_tmp(isolated_run: Path) -> Iterator[Path]:
    """A short directory for what all these tests share."""
    yield from _short_directory()


@pytest.fixture(scope="session")
def backend(shared_tmp: Path) -> Iterator[Backend]:
    """One backend for all."""
    made = Backend(shared_tmp)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def server(shared_tmp: Path, backend: Backend) -> Iterator[JupyterServer]:
    """One server for all, at that backend."""
    # Dead kernels are seen sooner than after 3 s, those that don't listen are killed sooner than after 5 s, and guests that
    # nobody heard of are offered sooner than after 5 s.
    arguments = [
        "--KernelRestarter.time_to_dead=0.3",
        "--KernelManager.shutdown_wait_time=2",
        "--SalusKernelManager.salus_unheard_s=0.5",
    ]
    write_kernelspecs(shared_tmp / "data")
    write_profile(shared_tmp / "ipython")
    variables = {
        "JUPYTER_SALUS_SOCKET": backend.socket,
        "JUPYTER_PATH": str(shared_tmp / "data"),
        "IPYTHONDIR": str(shared_tmp / "ipython"),
    }
    made = JupyterServer(shared_tmp, arguments, variables).wait()
    yield made
    made.stop()


@pytest.fixture
async def kernels(short_tmp: Path) -> AsyncIterator[Kernels]:
    """Managers in this process."""
    made = Kernels(short_tmp)
    yield made
    await made.end()


@pytest.fixture(autouse=True)
def kernels_end(no_leaks: None) -> Iterator[None]:
    """A test that fails leaves no kernel with a server that others share: its second run would meet it."""
    before = {server: set(server.kernels) for server in JupyterServer.running}
    yield
    for server in list(JupyterServer.running):
        for kernel_id in server.kernels - before.get(server, set()):
            if server.process.poll() is None:
                server.request("DELETE", f"api/kernels/{kernel_id}")  # 404 where the test has done it
            server.kernels.discard(kernel_id)


@pytest.fixture(autouse=True)
def links_end(own_address: None) -> Iterator[None]:
    """Links of this process live as long as the process; here they end with the test."""
    yield
    close_links()
