"""Kernels and backends for the guest's tests."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_salus.protocol.messages import CellFinished, Hello, TurnWanted
from tests.guest.interpreters import VERSIONS, interpreter
from tests.guest.kernels import Kernel
from tests.guest.scripted import ScriptedBackend


@pytest.fixture
def backend(short_tmp: Path) -> Iterator[ScriptedBackend]:
    """A scripted backend that grants at once; set `generous = False` to grant by hand."""
    made = ScriptedBackend(short_tmp / "b.sock")
    yield made
    made.stop()


@pytest.fixture
def start_kernel() -> Iterator[Callable[..., Kernel]]:
    """Starts kernels that end with the test."""
    kernels: list[Kernel] = []

    def start(*args: Any, **kwargs: Any) -> Kernel:
        kernel = Kernel(*args, **kwargs)
        kernels.append(kernel)
        return kernel

    yield start
    for kernel in kernels:
        kernel.close()


@pytest.fixture
def kernel(backend: ScriptedBackend, start_kernel: Callable[..., Kernel]) -> Kernel:
    """A governed kernel of this test alone, whose guest has said hello."""
    made = start_kernel(backend.path)
    backend.expect(Hello)
    return made


class Governed:
    """A kernel and its backend that the tests of a module share; each test begins with an empty record."""

    def __init__(self, folder: Path, python: str = sys.executable, memory_mode: str = "host") -> None:
        self.folder = folder
        self.backend = ScriptedBackend(folder / "b.sock", memory_mode=memory_mode)
        self.kernel = Kernel(self.backend.path, python)
        self.backend.expect(Hello)
        self.kernel.run("import os, sys, time, threading, signal, asyncio\nx = 0")
        self._flags = 0

    def renew(self) -> None:
        """An empty record, and turns are granted by hand."""
        self.backend.forget()
        self.backend.generous = False

    def flag(self) -> Path:
        """A file that isn't there yet: what a cell's loop waits for."""
        self._flags += 1
        return self.folder / f"flag{self._flags}"

    def finish(self, request: str, flag: Path) -> Any:
        """Let a cell's loop end, grant what it still asks for, and see what came of the cell."""
        flag.touch()
        ran = self.kernel.collect(request)
        self.backend.expect(CellFinished)
        return ran

    def pass_a_turn(self) -> None:
        """With a turn granted: take it back, see it released in mid-cell, give the next one."""
        wanted = len(self.backend.all(TurnWanted))
        epoch = self.backend.revoke()
        message = self.backend.released(epoch)
        ticket = message.ticket
        if ticket is None:
            # The process slept just then, in a slow read of a file, say: it asks again once it computes.
            ticket = self.backend.expect(TurnWanted, wanted + 1).ticket
        self.backend.grant(ticket)

    def close(self) -> None:
        """End both."""
        self.kernel.close()
        self.backend.stop()


@pytest.fixture(scope="session")
def governed_by(isolated_run: Path) -> Iterator[Callable[..., Governed]]:
    """Governed kernels that all modules share, by interpreter, how memory is governed, and what they are for."""
    made: dict[tuple[str, str, str], Governed] = {}

    def make(python: str = sys.executable, memory_mode: str = "host", what_for: str = "") -> Governed:
        key = (python, memory_mode, what_for)
        if key not in made:
            folder = Path(tempfile.mkdtemp(prefix="js", dir="/tmp"))
            made[key] = Governed(folder, python, memory_mode)
        return made[key]

    yield make
    for one in made.values():
        one.close()
        shutil.rmtree(one.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_kernel(governed_by: Callable[..., Governed]) -> Governed:
    """One governed kernel for all modules."""
    return governed_by()


@pytest.fixture
def governed(shared_kernel: Governed) -> Governed:
    """The kernel, its backend with an empty record and granting by hand."""
    shared_kernel.renew()
    return shared_kernel


@pytest.fixture(scope="session")
def framework_kernel(governed_by: Callable[..., Governed]) -> Governed:
    """The kernel in which frameworks are imported: their threads count from then on."""
    return governed_by(what_for="frameworks")


@pytest.fixture(scope="session", params=VERSIONS)
def foreign_kernel(request: pytest.FixtureRequest, governed_by: Callable[..., Governed]) -> Governed:
    """A governed kernel of each other Python."""
    return governed_by(interpreter(request.param))


@pytest.fixture
def foreign(foreign_kernel: Governed) -> Governed:
    """The version's kernel, its backend with an empty record and granting by hand."""
    foreign_kernel.renew()
    return foreign_kernel


@pytest.fixture(scope="session", params=("this one", *VERSIONS))
def any_kernel(request: pytest.FixtureRequest, governed_by: Callable[..., Governed]) -> Governed:
    """A governed kernel of each Python, the one that runs the tests too."""
    return governed_by() if request.param == "this one" else governed_by(interpreter(request.param))


@pytest.fixture
def any_python(any_kernel: Governed) -> Governed:
    """That kernel, its backend with an empty record and granting by hand."""
    any_kernel.renew()
    return any_kernel


@pytest.fixture(scope="module")
def plain(isolated_run: Path) -> Iterator[Kernel]:
    """A kernel without a guest, to compare with."""
    made = Kernel(None)
    made.run("import os, sys, time, threading, signal, asyncio\nx = 0")
    yield made
    made.close()
