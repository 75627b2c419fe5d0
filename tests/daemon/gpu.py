"""A machine with stand-in GPUs for the daemon's tests: a real backend, and real processes under the real guard."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.daemon.speaking import PATIENCE_S, Daemon
from tests.native.world import Child, World

MIB = 1 << 20
Wire = dict[str, Any]


class Gpu:
    """GPUs of 96 MiB each unless `environ` says otherwise, a backend that governs them, and processes on them."""

    def __init__(self, world: World, start: Callable[..., Daemon], *options: str, **environ: str) -> None:
        self.world = world
        world.environment.update({"SALUS_STANDIN_CAPACITY": str(96 * MIB), **environ})
        self.stand_in = {
            name: value for name, value in world.environment.items() if name.startswith(("SALUS_", "LD_LIBRARY_PATH"))
        }
        self.daemon = start("--device=cuda", "--reserve=8MiB", *options, environ=self.stand_in)

    def process(self, session: str, **environ: str) -> Child:
        """A process of a session, under the guard, with a context."""
        child = self.world.child(JUPYTER_SALUS_SOCKET=self.daemon.path, JUPYTER_SALUS_SESSION=session, **environ)
        child.do("context = start()")
        return child

    @staticmethod
    def begin(child: Child, expression: str) -> int:
        """Evaluate it on a thread of its own; `child.end` has the value."""
        return child.begin(f"(call('cuCtxSetCurrent', context), {expression})[1]")

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
        """Bytes in use on the device, as it shows them itself, once they are as wanted."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(used := self.world.used()):
            assert time.monotonic() < deadline, f"never came: {what}; {used} bytes are in use"
            time.sleep(0.02)
        return used

    def act(self, verb: str, session: str, value: str | None = None) -> None:
        with self.daemon.client() as client:
            client.act(verb, session, value)

    def until(self, session: str, *states: str) -> Wire:
        """The row of a session once it is in one of these states."""
        row = self.daemon.until(session, lambda row: row is not None and row["state"] in states)
        assert row is not None
        return row

    def gone(self, session: str) -> None:
        """Waits until nothing of a session is left."""
        self.daemon.until(session, lambda row: row is None)

    def words(self) -> list[str]:
        """The journal."""
        return self.daemon.words()
