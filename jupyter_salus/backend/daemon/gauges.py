"""P and E of each session on a device that shows them only from outside: at boundaries, and by samples in between.

P is what a session holds at a boundary: the guest says so for its process, the last sample for its children. E is the
highest sample since the boundary before, less the larger of both boundaries' P: what came and stayed in between is P's
growth, not E. A session in its turn that tells of no boundary for a while (nobody wants its turn, so its loop says
nothing) comes down to its P at each boundary all the same: the lowest sample stands for it.

Small changes aren't told, so that nobody is woken by the breathing of an allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..core.events import MemoryMeasured
from ..devices.base import Device, Usage
from .clock import Clock
from .guarded import Guarded
from .records import Record

#: A figure is told when it differs by so many bytes from what was told, and by this share of it.
STEP_BYTES = 1024 * 1024
STEP_SHARE = 0.01
#: Seconds without a boundary told after which samples alone stand for P and E.
SILENT_S = 2.0


@dataclass(slots=True)
class _Gauge:
    persistent_bytes: int = 0
    peak_bytes: int = 0
    low_bytes: int = 0
    #: When the last boundary was told, or samples stood for one.
    at: float = 0.0
    children_bytes: int = 0
    told_persistent: int = -1
    told_ephemeral: int = 0
    #: What the last sample showed of the process itself.
    own_bytes: int = 0


class Gauges:
    """One gauge for each session that the core knows, except guarded ones: their guards say what they hold."""

    def __init__(self, devices: Mapping[str, Device], clock: Clock) -> None:
        self._devices = devices
        #: Devices that show a process's memory from outside alone: what its guest says of itself is of another kind.
        self._outside = {id for id, device in devices.items() if device.capabilities().memory_mode != "host"}
        self._clock = clock
        #: What the books have of a guarded session, by process; set where the parts are put together.
        self.claims: Callable[[Guarded], dict[int, int]] = lambda session: {}
        self._gauges: dict[Record, _Gauge] = {}

    def held(self, device: str) -> dict[int, int]:
        """What sessions hold of a device, by process, as measured last; children's is their session's."""
        held: dict[int, int] = {}
        for record, gauge in self._gauges.items():
            if record.device == device:
                amounts = {record.pid: max(gauge.persistent_bytes, gauge.peak_bytes)}
                if record.guarded is not None:
                    amounts = self.claims(record.guarded)
                for pid, amount in amounts.items():
                    held[pid] = held.get(pid, 0) + amount
        return held

    def opened(self, record: Record, said_bytes: int | None) -> int:
        """A session opens: its P to begin with, as its guest says it; what it held before it came back, otherwise."""
        before = self._gauges.get(record, _Gauge())
        if record.device in self._outside:
            said_bytes = None
        held = max(0, said_bytes) if said_bytes is not None else before.persistent_bytes
        self._gauges[record] = _Gauge(held, held, held, self._clock.now(), told_persistent=held)
        return held

    def closed(self, record: Record) -> None:
        """Its gauge is gone."""
        self._gauges.pop(record, None)

    def boundary(self, record: Record, resident_bytes: int, peak_bytes: int | None) -> MemoryMeasured | None:
        """The session is at a boundary with so many bytes in its own process. What the core is to be told, if anything."""
        gauge = self._gauges.get(record)
        if gauge is None:
            return None
        if record.device in self._outside:
            resident_bytes, peak_bytes = gauge.own_bytes, None
        before, now = gauge.persistent_bytes, resident_bytes + gauge.children_bytes
        peak = max(gauge.peak_bytes, now, (peak_bytes or 0) + gauge.children_bytes if peak_bytes else 0)
        self._begin(gauge, now)
        return self._told(record, gauge, max(0, peak - max(before, now)))

    def sampled(self, record: Record, usage: Usage) -> MemoryMeasured | None:
        """What the session's processes hold now. In a turn that is a sample for E, else its P."""
        gauge = self._gauges.get(record)
        if gauge is None:
            return None
        record.pids = usage.pids
        gauge.children_bytes, gauge.own_bytes = usage.children_bytes, usage.own_bytes
        if record.epoch is None:
            self._begin(gauge, usage.resident_bytes)
            return self._told(record, gauge, None)
        gauge.peak_bytes = max(gauge.peak_bytes, usage.resident_bytes)
        # 0: nothing was known of it until now.
        gauge.low_bytes = min(gauge.low_bytes or usage.resident_bytes, usage.resident_bytes)
        if self._clock.now() - gauge.at < SILENT_S:
            return None
        low, peak = gauge.low_bytes, gauge.peak_bytes
        self._begin(gauge, usage.resident_bytes)
        gauge.persistent_bytes = low
        return self._told(record, gauge, peak - low)

    def free(self, record: Record) -> bool:
        """Whether the device shows nothing of a session any more, nor of the children that were seen with it."""
        pids = record.pids or ((record.pid,) if record.pid else ())
        return not pids or self._devices[record.device].remains(pids) is None

    def _begin(self, gauge: _Gauge, held_bytes: int) -> None:
        gauge.persistent_bytes = gauge.peak_bytes = gauge.low_bytes = held_bytes
        gauge.at = self._clock.now()

    def _told(self, record: Record, gauge: _Gauge, ephemeral: int | None) -> MemoryMeasured | None:
        persistent: int | None = gauge.persistent_bytes
        if _same(gauge.persistent_bytes, gauge.told_persistent):
            persistent = None
        if ephemeral is not None and ephemeral < STEP_BYTES and gauge.told_ephemeral == 0:
            ephemeral = None
        if (persistent is None and ephemeral is None) or record.core_id is None:
            return None
        if persistent is not None:
            gauge.told_persistent = persistent
        if ephemeral is not None:
            gauge.told_ephemeral = ephemeral
        return MemoryMeasured(record.core_id, persistent, ephemeral)


def _same(one: int, other: int) -> bool:
    return other >= 0 and abs(one - other) < max(STEP_BYTES, STEP_SHARE * other)
