"""Looks at the devices and at the sessions' processes: often while somebody has a turn or is leaving, else seldom.

Reading memory maps may take milliseconds, so it is done in a thread beside the loop. It never takes more than a small
share of the time: the more there is to read, the less often.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ...errors import SalusError
from ..core.events import DeviceMeasured, Event
from ..devices.base import Device, Figures, Usage
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
    """What one look found: usage by record, records of whose processes nothing is left, totals where they were due, and
    what each process holds as far as the device tells by itself."""

    usages: dict[Record, Usage]
    freed: list[Record]
    figures: dict[str, Figures]
    listed: dict[str, Mapping[int, int]]
    seconds: float


class Sampling:
    """Runs until cancelled. `leave(record)` is called where nothing is left of a leaving session; `listed(device, bytes)`
    with what each process of a device holds, where the device tells."""

    def __init__(
        self,
        devices: Mapping[str, Device],
        records: Records,
        gauges: Gauges,
        clock: Clock,
        tell: Callable[[Event], None],
        leave: Callable[[Record], None],
        listed: Callable[[str, Mapping[int, int]], None],
        log: logging.Logger,
    ) -> None:
        self._devices = devices
        self._can = {id: device.capabilities() for id, device in devices.items()}
        self._records = records
        self._gauges = gauges
        self._clock = clock
        self._tell = tell
        self._leave = leave
        self._listed = listed
        self._log = log
        #: The totals of each device as they were told last.
        self.told: dict[str, Figures] = {}
        self._idle_due = 0.0
        self._totals_due = 0.0
        self.healthy = True

    def first(self) -> None:
        """Tell the core of the devices, before anybody else comes. Raises `DeviceError`."""
        for id, device in self._devices.items():
            self._tell_totals(id, device.figures({}))

    async def look_at(self, id: str) -> bool:
        """Look at a device's totals now, and tell them whatever they are; False if it can't be looked at."""
        held = self._gauges.held(id)
        try:
            figures = await asyncio.to_thread(self._devices[id].figures, held)
        except SalusError as error:
            self._log.warning("The device %s can't be looked at: %s", id, error)
            return False
        self._tell_totals(id, figures, whatever=True)
        return True

    def taken_over(self, id: str, amount: int) -> None:
        """So many bytes of a device that were counted as foreign turn out to be a session's: a backend that came back
        would count them twice until it looks again, and move somebody for it. The next look comes soon."""
        told = self.told.get(id)
        if told is not None:
            self._tell_totals(id, replace(told, foreign_bytes=max(told.foreign_bytes - amount, 0)), whatever=True)
            self._totals_due = 0.0

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
            # Guards say by themselves what their session holds, as long as it is there.
            asked = [
                (one, one.pid or one.pids[0], one.pids if one.leaving else None)
                for one in records
                if (one.pid or one.pids) and (one.leaving or one.guarded is None)
            ]
            apart = {one.pid for one in self._records.by_core.values() if one.pid}
            held = {id: self._gauges.held(id) for id in self._devices} if totals_due else {}
            try:
                look = await asyncio.to_thread(self._look, asked, apart, held, idle_due)
            except (SalusError, OSError) as error:
                if self.healthy:
                    self._log.warning("A device can't be looked at: %s", error)
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

    def _look(self, asked: list[_Asked], apart: set[int], held: dict[str, dict[int, int]], listing: bool) -> _Look:
        """In the thread: nothing of the loop's is touched. `held`: what sessions hold, of devices whose totals are due."""
        started = self._clock.now()
        usages: dict[Record, Usage] = {}
        freed: list[Record] = []
        for record, pid, leaving in asked:
            device = self._devices[record.device]
            usage = device.usage(pid, apart)
            if usage is None and leaving is not None:
                usage = device.remains(leaving)
                if usage is None:
                    freed.append(record)
            if usage is not None:
                usages[record] = usage
        # Not with every look at those in a turn: a driver that is asked often holds up small kernels.
        listed = {id: device.listed() for id, device in self._devices.items()} if listing else {}
        figures = {id: self._devices[id].figures(amounts) for id, amounts in held.items()}
        return _Look(usages, freed, figures, listed, self._clock.now() - started)

    def _told_all(self, look: _Look) -> None:
        for record, usage in look.usages.items():
            if record.core_id is not None:
                event = self._gauges.sampled(record, usage)
                # One that went meanwhile is no session of the core's any more; its bytes count until they are free.
                if event is not None and not record.leaving:
                    self._said(event)
        for record in look.freed:
            if record.leaving:
                self._leave(record)
        for id, listed in look.listed.items():
            self._listed(id, listed)
        for id, figures in look.figures.items():
            self._tell_totals(id, figures)

    def _tell_totals(self, id: str, figures: Figures, whatever: bool = False) -> None:
        told = self.told.get(id)
        if told is not None:
            step = 1 if whatever else TOTALS_STEP * figures.capacity_bytes
            same = figures.capacity_bytes == told.capacity_bytes
            if same and abs(figures.foreign_bytes - told.foreign_bytes) < step:
                return
        self.told[id] = figures
        self._said(
            DeviceMeasured(
                device=id,
                capacity_bytes=figures.capacity_bytes,
                foreign_bytes=figures.foreign_bytes,
                reserve_bytes=figures.reserve_bytes,
                moves=self._can[id].moves,
                side_by_side=self._can[id].side_by_side,
            )
        )

    def _said(self, event: Event) -> None:
        try:
            self._tell(event)
        except SalusError as error:
            self._log.warning("The core refused %r: %s", event, error)
