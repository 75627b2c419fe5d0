"""Guards and the backend: real processes under the real guard on stand-in GPUs, governed by a real backend."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.speaking import PATIENCE_S, Daemon
from tests.native.conftest import built
from tests.native.world import Child, World

__all__ = ["built"]

MIB = 1 << 20
Wire = dict[str, Any]


class Gpu:
    """A machine with stand-in GPUs, a backend that governs them, and processes on them."""

    def __init__(self, world: World, start: Callable[..., Daemon], *options: str, **environ: str) -> None:
        self.world = world
        world.environment.update(environ)
        stand_in = {
            name: world.environment[name]
            for name in world.environment
            if name.startswith(("SALUS_", "LD_LIBRARY_PATH"))
        }
        self.daemon = start("--device=cuda", "--reserve=8MiB", *options, environ=stand_in)

    def process(self, session: str, **environ: str) -> Child:
        """A process of a session, under the guard, with a context."""
        child = self.world.child(
            JUPYTER_SALUS_SOCKET=self.daemon.path, JUPYTER_SALUS_SESSION=session, **environ
        )
        child.do("start()")
        return child

    def tensor(self, session: str, size: int, **environ: str) -> tuple[Child, str]:
        """A process that holds `size` random bytes at `at`, and what they are."""
        child = self.process(session, **environ)
        child.do(f"at = alloc({size})")
        child.do(f"write(at, random_bytes({size}))")
        return child, self.digest(child, size)

    @staticmethod
    def digest(child: Child, size: int) -> str:
        found: str = child.do(f"digest(at, {size})")
        return found

    def until_used(self, holds: Callable[[int], bool], what: str) -> int:
        """Bytes in use on the device, as the device itself shows them, once they are as wanted."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(used := self.world.used()):
            assert time.monotonic() < deadline, f"never came: {what}; {used} bytes are in use"
            time.sleep(0.02)
        return used

    def act(self, verb: str, session: str, value: str | None = None) -> None:
        with self.daemon.client() as client:
            client.act(verb, session, value)

    def until(self, session: str, state: str) -> Wire:
        row = self.daemon.until(session, lambda row: row is not None and row["state"] == state)
        assert row is not None
        return row


@pytest.fixture
def world(built: Path, short_tmp: Path) -> Iterator[World]:
    made = World(built, short_tmp, real=False)
    yield made
    made.stop()


@pytest.fixture
def gpu(world: World, start_daemon: Callable[..., Daemon]) -> Gpu:
    """One GPU of 256 MiB."""
    return Gpu(world, start_daemon)


def test_a_process_that_touches_the_gpu_is_a_session_with_what_it_holds(gpu: Gpu) -> None:
    child, _ = gpu.tensor("s1", 40 * MIB)
    row = gpu.until("s1", "holding")
    assert row["memory_mode"] == "blocks"
    assert row["device"] == "gpu:0"
    assert 40 * MIB <= row["persistent_bytes"] <= 60 * MIB
    assert row["turns"] >= 1
    child.stop()
    gpu.daemon.until("s1", lambda row: row is None)
    gpu.until_used(lambda used: used == 0, "all bytes free")


def test_an_idle_session_moves_out_and_comes_back_with_the_same_bytes(gpu: Gpu) -> None:
    child, before = gpu.tensor("s1", 64 * MIB)
    gpu.until("s1", "holding")
    gpu.act("evict", "s1")
    row = gpu.until("s1", "evicted")
    assert row["evictions"] == 1
    gpu.until_used(lambda used: used < 16 * MIB, "the session's bytes free")
    gpu.act("restore", "s1")
    gpu.until("s1", "holding")
    gpu.until_used(lambda used: used >= 64 * MIB, "the session's bytes back")
    assert gpu.digest(child, 64 * MIB) == before
