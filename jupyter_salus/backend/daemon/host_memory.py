"""Host memory for what is moved out: what all guards of this host may touch together, granted before it is touched.

A guard keeps its arena after a return, since the next eviction is quick then; who needs the bytes more takes them back.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.guard import DropArena
from ..devices import machine
from .guarded import Guard

#: Of the machine's memory, or of what its control group allows.
SHARE = 0.5


def budget(setting_bytes: int | None) -> int:
    """The least of the setting and half of the memory that there is."""
    half = int(machine.memory().total_bytes * SHARE)
    return half if setting_bytes is None else min(setting_bytes, half)


class HostMemory:
    """What was granted to whom."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._granted: dict[Guard, int] = {}

    @property
    def granted_bytes(self) -> int:
        """What all guards have together."""
        return sum(self._granted.values())

    def grant(self, guard: Guard, amount: int) -> str | None:
        """Let a guard have so many bytes in all; None, or why that can't be. Idle arenas of others are given up for it."""
        others = self.granted_bytes - self._granted.get(guard, 0)
        for other in self._idle(guard):
            if others + amount <= self.budget_bytes:
                break
            others -= self._granted.pop(other)
            if other.connection is not None:
                other.connection.say(DropArena(0))
        if others + amount > self.budget_bytes:
            return f"cannot hold {amount} bytes in host memory: {others} of {self.budget_bytes} are taken by other sessions"
        self._granted[guard] = max(amount, self._granted.get(guard, 0))
        return None

    def free(self, guard: Guard) -> None:
        """The process is gone, and its arena with it."""
        self._granted.pop(guard, None)

    def _idle(self, guard: Guard) -> Iterable[Guard]:
        """Others whose arenas hold nothing, the largest first."""
        found = [one for one in self._granted if one is not guard and not one.evicted_bytes and not one.moving]
        return sorted(found, key=lambda one: -self._granted[one])
