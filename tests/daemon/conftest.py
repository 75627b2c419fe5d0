"""A backend for each test that asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.gpu import Gpu
from tests.daemon.nursery import Nursery
from tests.daemon.speaking import Daemon
from tests.native.conftest import built
from tests.native.world import World

__all__ = ["built"]


@pytest.fixture(scope="package", autouse=True)
def nursery(isolated_run: Path) -> Iterator[Nursery]:
    """Where this folder's backends are born."""
    made = Nursery.current = Nursery()
    yield made
    Nursery.current = None
    made.close()


@pytest.fixture
def start_daemon(short_tmp: Path) -> Iterator[Callable[..., Daemon]]:
    """`start_daemon(*options)`: a backend in a directory of its own; at the end it must stop cleanly, its log without
    a traceback."""
    started: list[Daemon] = []

    def start(*options: str, **keywords: dict[str, Any]) -> Daemon:
        directory = short_tmp / str(len(started))
        directory.mkdir()
        started.append(Daemon(directory, *(options or ("--device=host", "--capacity=4GiB")), **keywords))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def daemon(start_daemon: Callable[..., Daemon]) -> Daemon:
    return start_daemon()


@pytest.fixture
def world(built: Path, short_tmp: Path) -> Iterator[World]:
    """Stand-in GPUs, one of 256 MiB unless their first use says otherwise."""
    made = World(built, short_tmp, real=False)
    yield made
    made.stop()


@pytest.fixture
def gpu(world: World, start_daemon: Callable[..., Daemon]) -> Gpu:
    """One GPU of 256 MiB, and the backend that governs it."""
    return Gpu(world, start_daemon)
