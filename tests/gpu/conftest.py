"""Machines with a GPU for these tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_salus.manager.link import close_links
from jupyter_salus.native import build
from tests.gpu.machine import Machine


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failed test shows what its backend saw and decided."""
    report: Any = yield
    if report.when == "call" and report.failed:
        funcargs = getattr(item, "funcargs", {})
        for machine in {one for one in funcargs.values() if isinstance(one, Machine)}:
            report.sections.append(("what the backend tells", machine.story()))
    return report


@pytest.fixture(scope="session")
def built() -> Path:
    """The directory of the guard and of the stand-in's libraries, built from these sources; kept between runs."""
    reasons: list[str] = []
    if build.compiler() is None:
        pytest.skip("no C compiler on this machine: the guard can't be built")
    directory = build.cached(Path(tempfile.gettempdir()) / f"jupyter-salus-native-{os.getuid()}", reasons.append)
    assert directory is not None, reasons
    return directory


@pytest.fixture(scope="module")
def machines(built: Path, isolated_run: Path) -> Iterator[Callable[..., Machine]]:
    """Makes machines that live as long as the module: `machines(capacity_mib=…, devices=…)`."""
    made: list[Machine] = []
    directories: list[Path] = []

    def make(**options: Any) -> Machine:
        directories.append(Path(tempfile.mkdtemp(prefix="js", dir="/tmp")))
        made.append(Machine(built, directories[-1], **options))
        return made[-1]

    yield make
    for machine in made:
        machine.stop()
    close_links()
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def machine(built: Path, short_tmp: Path) -> Iterator[Machine]:
    """One for this test alone: 256 MiB."""
    made = Machine(built, short_tmp)
    yield made
    made.stop()
    close_links()
