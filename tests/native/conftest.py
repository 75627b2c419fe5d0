"""Fixtures of the guard's tests: the built libraries, and a world to run them in."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from jupyter_salus.native import build
from tests.native.world import PROGRAMS, World

Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def built() -> Path:
    """The directory of the guard and the stand-in, built from these sources; kept between runs of the tests."""
    reasons: list[str] = []
    if build.compiler() is None:
        pytest.skip("no C compiler on this machine: the guard can't be built")
    directory = build.cached(Path(tempfile.gettempdir()) / f"jupyter-salus-native-{os.getuid()}", reasons.append)
    assert directory is not None, reasons
    return directory


@pytest.fixture(scope="session")
def compiled(built: Path) -> Compile:
    """Compiles C programs of the tests; kept beside the libraries, under a name of all that went into them."""

    def compile_(name: str, sources: Sequence[Path], *flags: str) -> Path:
        native = Path(build.__file__).parent
        digest = hashlib.sha256(repr(flags).encode())
        for source in sources:
            digest.update(source.read_bytes())
        target = built.parent / f"{name}-{built.name}-{digest.hexdigest()[:12]}"
        if not target.exists():
            partial = target.with_suffix(f".{os.getpid()}")
            include = [f"-I{native}", f"-I{native / 'guard'}"]
            command = build.compiler()
            assert command
            arguments = [*command, "-std=gnu11", "-g", "-pthread", *build.WARNINGS, *include]
            done = subprocess.run(
                [*arguments, *map(str, sources), "-o", str(partial), *flags],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            partial.rename(target)
        return target

    return compile_


@pytest.fixture(scope="session")
def sanitized_console(built: Path, compiled: Compile) -> list[str]:
    """A program with the guard in it, built with the address and undefined behaviour sanitizers."""
    guard = sorted((Path(build.__file__).parent / "guard").glob("*.c"))
    program = compiled(
        "sanitized",
        [PROGRAMS / "worker.c", *guard],
        "-O0",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-rdynamic",
        f"-L{built / 'standin'}",
        "-l:libcuda.so.1",
    )
    return ["env", "ASAN_OPTIONS=detect_leaks=0", str(program)]


def no_real_driver() -> str | None:
    """Why the real driver can't be tested here; None if it can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no driver on this machine: {error}"
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "the driver finds no device on this machine"
    return None


@pytest.fixture
def world(built: Path, short_tmp: Path) -> Iterator[World]:
    """A stand-in device of 256 MiB."""
    made = World(built, short_tmp, real=False)
    yield made
    made.stop()


@pytest.fixture(params=["standin", pytest.param("real", marks=pytest.mark.gpu)])
def any_world(request: pytest.FixtureRequest, built: Path, short_tmp: Path) -> Iterator[World]:
    """The stand-in, and the real driver where there is one: what holds for both."""
    if request.param == "real" and (reason := no_real_driver()):
        pytest.skip(reason)
    made = World(built, short_tmp, real=request.param == "real")
    yield made
    made.stop()
