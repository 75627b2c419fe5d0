"""The host device: a machine without a GPU, or one whose GPU isn't governed.

It governs a real budget of RAM, measured from the kernels' resident memory, and compute turns: one lane is open at a
time, however many cores there are. It moves nothing, and says so. With a capacity given, the budget is for sessions alone;
without one it is the machine's memory (or the control group's), what others use counts as foreign, and a reserve is kept.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from . import machine, processes
from .base import Capabilities, Figures, Usage

#: Share of the machine's memory kept free for the system where the budget isn't given.
RESERVE_SHARE = 0.05


class HostDevice:
    """The device `host`. `capacity_bytes` None: the machine's."""

    id = "host"

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self._capacity_bytes = capacity_bytes
        cores = os.cpu_count() or 1
        self.name = f"Host memory ({cores} {'core' if cores == 1 else 'cores'}, no GPU)"

    def capabilities(self) -> Capabilities:
        """Turns and accounting only."""
        return Capabilities(
            moves=False,
            side_by_side=False,
            memory_mode="host",
            lacks={
                "moves": "the memory of a process in RAM stays where it is; evicting frees nothing on the host device",
                "side_by_side": "sessions share the processor's cores, so one lane is open at a time",
            },
        )

    def figures(self, held: Mapping[int, int]) -> Figures:
        """The budget, or the machine's memory with what others use of it."""
        if self._capacity_bytes is not None:
            return Figures(self._capacity_bytes, 0, 0)
        found = machine.memory()
        foreign = min(found.total_bytes, max(0, found.used_bytes - sum(held.values())))
        return Figures(found.total_bytes, foreign, int(found.total_bytes * RESERVE_SHARE))

    def shown_bytes(self) -> int | None:
        """Nobody asks this device what it has."""
        return None

    def free_bytes(self) -> int:
        """What the machine has left."""
        found = machine.memory()
        return max(found.total_bytes - found.used_bytes, 0)

    def listed(self) -> Mapping[int, int]:
        """Nothing: memory in RAM is asked for by process."""
        return {}

    def usage(self, pid: int, apart: Collection[int] = ()) -> Usage | None:
        """Resident memory of the process, and what its children hold on top."""
        own = processes.resident_bytes(pid)
        if not own or not processes.alive(pid):
            return None
        children = processes.descendants(pid, apart)
        return Usage(own, sum(processes.private_bytes(child) or 0 for child in children), (pid, *children))

    def remains(self, pids: Collection[int]) -> Usage | None:
        """What those of the processes that still live hold."""
        living = tuple(pid for pid in pids if processes.alive(pid))
        if not living:
            return None
        return Usage(0, sum(processes.private_bytes(pid) or 0 for pid in living), living)
