"""Looks at the devices and at the sessions' processes: often while somebody has a turn or is leaving, else seldom.

Reading memory maps may take milliseconds, so it is done in a thread beside the loop. It never takes more than a small
share of the time: the more there is to read, the less often.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from ...errors import SalusError
from ..core.events import DeviceMeasured, Event
from ..devices.base import Capabilities, Device, Figures, Usage
from .clock import Clock
from .gauges import Gauges
from .records import Record, Records

#: Seconds between looks at sessions in a turn or leaving, at all others, and at the device's totals.
BUSY_S, IDLE_S, TOTALS_S = 0.1, 1.0, 2.0
#: Looking may take this share of the time, in a turn and otherwise.
BUSY_SHARE, IDLE_SHARE = 0.05, 0.01
#: A change of the totals is told from this share of the capacity on.
TOTALS_STEP = 0.01


#: A record to look at, its process, and for one that is leaving all processes that were seen with it.
_Asked = tuple[Record, int, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look found: usage by record, records of whose processes nothing is left, totals where they were due."""

    usages: dict[Record, Usage]
    freed: list[Record]
    figures: Figures | None
    seconds: float


class Sampling:
    """Runs until cancelled. `leave(record)` is called where nothing is left of a leaving session."""

    def __init__(
        self,
        device: Device,
        records: Records,
        gauges: Gauges,
        clock: Clock,
        tell: Callable[[Event], None],
        leave: Callable[[Record], None],
        log: logging.Logger,
    ) -> None:
        self._device = device
        self._can: Capabilities = device.capabilities()
        self._records = records
        self._gauges = gauges
        self._clock = clock
        self._tell = tell
        self._leave = leave
        self._log = log
        self._told: Figures | None = None
        self._idle_due = 0.0
        self._totals_due = 0.0
        self.healthy = True

    def first(self) -> None:
        """Tell the core of the device, before anybody else comes."""
        self._tell_totals(self._device.figures(0))

    async def run(self) -> None:
        """Look, tell, rest, for ever."""
        while True:
            busy = [one for one in self._records.by_core.values() if one.epoch is not None or one.leaving]
            now = self._clock.now()
            idle_due = now >= self._idle_due
            records = list(self._records.by_core.values()) if idle_due else busy
            totals_due = now >= self._totals_due
            if not records and not totals_due:
                await asyncio.sleep(BUSY_S)
                continue
            asked = [(one, one.pid, one.pids if one.leaving else None) for one in records if one.pid]
            apart = {one.pid for one in self._records.by_core.values() if one.pid}
            held = self._gauges.resident_bytes if totals_due else None
            try:
                look = await asyncio.to_thread(self._look, asked, apart, held)
            except (SalusError, OSError) as error:
                if self.healthy:
                    self._log.warning("The device %s can't be looked at: %s", self._device.id, error)
                self.healthy = False
                await asyncio.sleep(IDLE_S)
                continue
            self.healthy = True
            self._told_all(look)
            now = self._clock.now()
            if totals_due:
                self._totals_due = now + TOTALS_S
            if idle_due:
                self._idle_due = now + max(IDLE_S, look.seconds / IDLE_SHARE)
            busy_s = max(BUSY_S, look.seconds / BUSY_SHARE if not idle_due else 0.0)
            await asyncio.sleep(busy_s)

    def _look(self, asked: list[_Asked], apart: set[int], held_bytes: int | None) -> _Look:
        """In the thread: nothing of the loop's is touched. `held_bytes`: what sessions hold, where totals are due."""
        started = self._clock.now()
        usages: dict[Record, Usage] = {}
        freed: list[Record] = []
        for record, pid, leaving in asked:
            usage = self._device.usage(pid, apart)
            if usage is None and leaving is not None:
                usage = self._device.remains(leaving)
                if usage is None:
                    freed.append(record)
            if usage is not None:
                usages[record] = usage
        figures = self._device.figures(held_bytes) if held_bytes is not None else None
        return _Look(usages, freed, figures, self._clock.now() - started)

    def _told_all(self, look: _Look) -> None:
        for record, usage in look.usages.items():
            if record.core_id is not None:
                event = self._gauges.sampled(record, usage)
                if event is not None:
                    self._said(event)
        for record in look.freed:
            if record.leaving:
                self._leave(record)
        if look.figures is not None:
            self._tell_totals(look.figures)

    def _tell_totals(self, figures: Figures) -> None:
        if self._told is not None:
            step = TOTALS_STEP * figures.capacity_bytes
            if (
                figures.capacity_bytes == self._told.capacity_bytes
                and abs(figures.foreign_bytes - self._told.foreign_bytes) < step
            ):
                return
        self._told = figures
        self._said(
            DeviceMeasured(
                device=self._device.id,
                capacity_bytes=figures.capacity_bytes,
                foreign_bytes=figures.foreign_bytes,
                reserve_bytes=figures.reserve_bytes,
                moves=self._can.moves,
                side_by_side=self._can.side_by_side,
            )
        )

    def _said(self, event: Event) -> None:
        try:
            self._tell(event)
        except SalusError as error:
            self._log.warning("The core refused %r: %s", event, error)
