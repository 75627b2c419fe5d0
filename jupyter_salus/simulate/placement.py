"""Who is in which lane: the part of the log that no decision tells, read off the core after each event."""

from __future__ import annotations

from collections.abc import Mapping

from ..backend.core.scheduler import Scheduler
from ..backend.core.transitions import Residency
from .guest import Guest
from .log import Log
from .report import Tally

ON_DEVICE = frozenset({Residency.RESIDENT, Residency.EVICTING, Residency.RESTORING})


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
        self.residents = 0

    def observe(self, now: float) -> None:
        """Look at the core after an event was handled."""
        state = self._scheduler._state
        lanes: dict[str, tuple[str, int]] = {}
        for device in state.devices.values():
            self._tally.committed_max_bytes = max(self._tally.committed_max_bytes, device.ledger.given)
            for lane in device.lanes.values():
                lanes[lane.id] = (device.id, lane.size)
        self._tally.lanes_max = max(self._tally.lanes_max, len(lanes))
        guests = self._guests
        lane_of: dict[str, str] = {}
        for session in state.sessions.values():
            if session.lane is not None:
                lane_of[session.id] = session.lane.id
        if self._log.wanted:
            self._write_sizes(now, lane_of, lanes)
        for session in state.sessions.values():
            guest = guests[session.id]
            if not guest.resident and session.residency in ON_DEVICE:
                guest.resident = True
                self.residents += 1
                self._line(now, "resident", guest, None)
        self._tally.resident_max = max(self._tally.resident_max, self.residents)
        if self._log.wanted:
            for member, where in lane_of.items():
                if self._lane_of.get(member) != where:
                    self._line(now, "member", guests[member], where)
        self._lane_of, self._sizes = lane_of, lanes

    def _write_sizes(self, now: float, lane_of: dict[str, str], sizes: dict[str, tuple[str, int]]) -> None:
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

    def gone(self, guest: Guest) -> None:
        """A guest's bytes are off the device: it was moved out, or its process ended."""
        if guest.resident:
            guest.resident = False
            self.residents -= 1

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
