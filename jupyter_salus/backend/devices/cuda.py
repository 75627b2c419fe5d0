"""The device `gpu:N`: an NVIDIA GPU, as its management library shows it.

What it may give is its memory or the capacity that was set, whichever is less; foreign use is what is used beyond what
sessions hold, told apart by process where the library lists them, and by the sessions' own figures where it doesn't
(containers hide pids). Foreign use that lies beyond the capacity anyway takes nothing from it.

The guards in the sessions' processes move the memory; from here nothing but figures come, and no context is ever made.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from ...errors import BadValue, DeviceError
from . import processes
from .base import Capabilities, Figures, Usage
from .nvml import CHECKPOINT_DRIVER, Card, Filling, Nvml

#: Kept back for what nobody asks for before it is taken: contexts, modules, local memory. On small cards the share.
RESERVE_BYTES = 1 << 30
RESERVE_SHARE = 1 / 8
#: Several questions about one moment are answered from one look.
_FRESH_S = 0.02


class CudaDevice:
    """One GPU. `capacity_bytes` None: all of its memory. Raises `BadValue` for figures beyond it, `DeviceError`."""

    def __init__(
        self, nvml: Nvml, card: Card, capacity_bytes: int | None = None, reserve_bytes: int | None = None
    ) -> None:
        if card.unshareable is not None:
            raise DeviceError(f"cannot govern gpu:{card.index} ({card.name}): {card.unshareable}")
        if capacity_bytes is not None and capacity_bytes > card.total_bytes:
            raise BadValue(
                f"cannot govern {capacity_bytes} bytes of gpu:{card.index} ({card.name}): it has {card.total_bytes}"
            )
        self.id = f"gpu:{card.index}"
        self.name = card.name
        self.uuid = card.uuid
        self.index = card.index
        self._nvml = nvml
        self._total_bytes = card.total_bytes
        self._capacity_bytes = capacity_bytes if capacity_bytes is not None else card.total_bytes
        default = min(RESERVE_BYTES, int(self._capacity_bytes * RESERVE_SHARE))
        self._reserve_bytes = reserve_bytes if reserve_bytes is not None else default
        if self._reserve_bytes >= self._capacity_bytes:
            raise BadValue(
                f"cannot keep {self._reserve_bytes} bytes of {self.id} in reserve: its capacity is {self._capacity_bytes}"
            )
        self._seen: Filling | None = None
        self._seen_at = 0.0

    def capabilities(self) -> Capabilities:
        """Guarded sessions can be moved; contexts stay where they are."""
        old = f", and this driver ({self._nvml.driver}) is older than {CHECKPOINT_DRIVER}"
        context = "a session's context stays on the device when its memory moves out"
        return Capabilities(
            moves=True,
            side_by_side=True,
            memory_mode="plain",
            lacks={"contexts": context + (old if self._nvml.driver_major < CHECKPOINT_DRIVER else "")},
        )

    def figures(self, held: Mapping[int, int]) -> Figures:
        """The totals now, with what nobody of `held` accounts for as foreign."""
        now = self._look(fresh=True)
        # Of a listed process what it has now, not what was booked a moment ago: a return may have ended in between.
        ours = sum(now.processes.get(pid, amount) for pid, amount in held.items())
        beyond = now.total_bytes - self._capacity_bytes
        foreign = min(max(now.used_bytes - ours - beyond, 0), self._capacity_bytes - self._reserve_bytes)
        return Figures(self._capacity_bytes, foreign, self._reserve_bytes)

    def shown_bytes(self) -> int | None:
        """The capacity, if it was set below what the card has."""
        return self._capacity_bytes if self._capacity_bytes < self._total_bytes else None

    def free_bytes(self) -> int:
        """What the device has free now, for whomever."""
        now = self._look(fresh=True)
        return now.total_bytes - now.used_bytes

    def listed(self) -> Mapping[int, int]:
        """What the driver says of each process."""
        return self._look(fresh=True).processes

    def usage(self, pid: int, apart: Collection[int] = ()) -> Usage | None:
        """What the process and its children hold; those that the library doesn't list hold nothing that is known."""
        if not processes.alive(pid):
            return None
        listed = self._look().processes
        children = [one for one in processes.descendants(pid, apart) if one in listed] if listed else []
        return Usage(listed.get(pid, 0), sum(listed[one] for one in children), (pid, *children))

    def remains(self, pids: Collection[int]) -> Usage | None:
        """What is left of those processes; the driver lists one until all that it had is free."""
        listed = self._look(fresh=True).processes
        left = tuple(pid for pid in pids if pid in listed or processes.alive(pid))
        if not left:
            return None
        return Usage(0, sum(listed.get(pid, 0) for pid in left), left)

    def _look(self, fresh: bool = False) -> Filling:
        now = time.monotonic()
        if fresh or self._seen is None or now - self._seen_at > _FRESH_S:
            self._seen = self._nvml.filling(self.index)
            self._seen_at = now
        return self._seen
