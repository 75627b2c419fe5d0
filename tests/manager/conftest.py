"""Backends and servers for these tests; what is costly to start is shared by the tests of a module."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_salus.manager.link import close_links
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
    made = JupyterServer(module_tmp, variables={"JUPYTER_SALUS_SOCKET": backend.socket}).wait()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def links_end(own_address: None) -> Iterator[None]:
    """Links of this process live as long as the process; here they end with the test."""
    yield
    close_links()
