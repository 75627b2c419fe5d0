"""Who is in which lane: the part of the log that no decision tells, read off the core after each event."""

from __future__ import annotations

from collections.abc import Mapping

from ..backend.core.scheduler import Scheduler
from .guest import Guest
from .log import Log
from .report import Tally


class Placement:
    """Compares the core's lanes with what was last seen, writes the differences to the log and keeps their maxima.

    The order of the lines is one in which SAFE can be checked line by line: members leave, lanes shrink, lanes grow, members
    enter.
    """

    def __init__(self, scheduler: Scheduler, log: Log, tally: Tally, guests: Mapping[str, Guest]) -> None:
        self._scheduler = scheduler
        self._log = log
        self._tally = tally
        self._guests = guests
        #: Lane by session, and (device, bytes) by lane, as last seen.
        self._lane_of: dict[str, str] = {}
        self._sizes: dict[str, tuple[str, int]] = {}

    def observe(self, now: float) -> None:
        """Look at the core after an event was handled."""
        snapshot = self._scheduler.snapshot(now)
        sizes = {row.id: (row.device, row.ephemeral_bytes) for row in snapshot.lanes}
        lane_of = {member: row.id for row in snapshot.lanes for member in row.members}
        for device in snapshot.devices:
            given = device.capacity_bytes - device.foreign_bytes - device.reserve_bytes - device.free_bytes
            self._tally.committed_max_bytes = max(self._tally.committed_max_bytes, given)
        self._tally.lanes_max = max(self._tally.lanes_max, len(sizes))
        if self._log.wanted:
            self._write(now, lane_of, sizes)
        self._lane_of, self._sizes = lane_of, sizes

    def _write(self, now: float, lane_of: dict[str, str], sizes: dict[str, tuple[str, int]]) -> None:
        for session, lane in self._lane_of.items():
            guest = self._guests[session]
            if lane_of.get(session) != lane and guest.resident:
                self._line(now, "park", guest, None)
        smaller: list[tuple[str, str, int]] = []
        larger: list[tuple[str, str, int]] = []
        for lane, (device, _) in self._sizes.items():
            if lane not in sizes:
                smaller.append((lane, device, 0))
        for lane, (device, size) in sizes.items():
            before = self._sizes.get(lane, (device, 0))[1]
            if size != before:
                (smaller if size < before else larger).append((lane, device, size))
        for lane, device, size in smaller + larger:
            self._log.write(now, "lane_size", device=device, lane=lane, ephemeral_bytes=size)
        for session, lane in lane_of.items():
            if self._lane_of.get(session) != lane:
                self._line(now, "member", self._guests[session], lane)

    def grown(self, guest: Guest, now: float) -> None:
        """A member's memory is more than it was."""
        lane = self._lane_of.get(guest.id)
        if lane is not None:
            self._line(now, "member", guest, lane)

    def _line(self, now: float, event: str, guest: Guest, lane: str | None) -> None:
        self._log.write(
            now,
            event,
            job=guest.id,
            device=guest.device,
            lane=lane,
            persistent_bytes=guest.persistent_bytes,
            ephemeral_bytes=guest.ephemeral_bytes,
        )
