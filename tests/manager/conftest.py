"""Backends and servers for these tests; what is costly to start is shared by the tests of a module."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from jupyter_salus.manager.link import close_links
from tests.manager.kernels import Kernels
from tests.manager.running import Backend, JupyterServer


@pytest.fixture(scope="module")
def module_tmp() -> Iterator[Path]:
    """A short directory for the module's sockets."""
    path = Path(tempfile.mkdtemp(prefix="js", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def backend(module_tmp: Path, isolated_run: Path) -> Iterator[Backend]:
    """The module's backend."""
    made = Backend(module_tmp)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def server(module_tmp: Path, backend: Backend) -> Iterator[JupyterServer]:
    """The module's server, at the module's backend."""
    # Dead kernels are seen sooner than after 3 s, and those that don't listen are killed sooner than after 5 s.
    arguments = ["--KernelRestarter.time_to_dead=0.3", "--KernelManager.shutdown_wait_time=2"]
    made = JupyterServer(module_tmp, arguments, {"JUPYTER_SALUS_SOCKET": backend.socket}).wait()
    yield made
    made.stop()


@pytest.fixture
async def kernels(short_tmp: Path) -> AsyncIterator[Kernels]:
    """Managers in this process."""
    made = Kernels(short_tmp)
    yield made
    await made.end()


@pytest.fixture(autouse=True)
def links_end(own_address: None) -> Iterator[None]:
    """Links of this process live as long as the process; here they end with the test."""
    yield
    close_links()
