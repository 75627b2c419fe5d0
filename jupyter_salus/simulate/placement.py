"""Who is in which lane: the part of the log that no decision tells, read off the core after each event."""

from __future__ import annotations

from collections.abc import Mapping

from ..backend.core.scheduler import Scheduler
from .guest import Guest, State
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
        #: Bytes outside lanes, by device and by session.
        self._held: dict[str, int] = {}
        self._held_of: dict[str, int] = {}
        #: Sessions that were stopped in mid-iteration and are in no lane since.
        self._stopped: set[str] = set()
        self._residents = 0
        self._seen = 0

    def observe(self, now: float) -> None:
        """Look at the core after an event was handled."""
        changes = self._scheduler.changes
        if changes == self._seen:
            return
        self._seen = changes
        places = self._scheduler.places()
        lanes = {lane: (device, size) for lane, device, size in places.lanes}
        lane_of = {session: lane for session, lane, _, _ in places.sessions if lane is not None}
        self._tally.lanes_max = max(self._tally.lanes_max, len(lanes))
        if self._log.wanted:
            self._write_sizes(now, lane_of, lanes)
        for session, _, on_device, _ in places.sessions:
            if on_device:
                guest = self._guests[session]
                if not guest.resident and guest.state is not State.GONE:
                    guest.resident = True
                    self._residents += 1
                    self._count(guest, guest.persistent_bytes)
                    self._line(now, "resident", guest, None)
        self._tally.resident_max = max(self._tally.resident_max, self._residents)
        if self._log.wanted:
            for session, lane in lane_of.items():
                if self._lane_of.get(session) != lane:
                    self._line(now, "member", self._guests[session], lane)
        self._lane_of, self._sizes = lane_of, lanes
        for session in [session for session in self._stopped if session in lane_of]:
            self._stopped.discard(session)
            self._count(self._guests[session], self._guests[session].persistent_bytes)
        committed = dict(self._held)
        for name, size in lanes.values():
            committed[name] = committed.get(name, 0) + size
        self._tally.committed_max_bytes = max(self._tally.committed_max_bytes, *committed.values(), 0)

    def _count(self, guest: Guest, held: int) -> None:
        """Have so many bytes of a guest count outside lanes."""
        before = self._held_of.get(guest.id, 0)
        self._held_of[guest.id] = held
        self._held[guest.device] = self._held.get(guest.device, 0) + held - before

    def _write_sizes(self, now: float, lane_of: dict[str, str], sizes: dict[str, tuple[str, int]]) -> None:
        for session, lane in self._lane_of.items():
            guest = self._guests[session]
            if lane_of.get(session) == lane or not guest.resident:
                continue
            if guest.state is State.GROWING:
                # It goes out in mid-iteration: what it holds isn't its lane's any more.
                self.stopped(guest, guest.ephemeral_bytes)
                self._line(now, "stop", guest, lane)
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
            self._residents -= 1
        self._stopped.discard(guest.id)
        self._count(guest, 0)

    def stopped(self, guest: Guest, held: int) -> None:
        """A guest was stopped in mid-iteration and keeps so much beside its P, until it is in a lane again."""
        if guest.resident:
            self._count(guest, guest.persistent_bytes + held)
            self._stopped.add(guest.id)

    def changed(self, guest: Guest, now: float) -> None:
        """A member's memory isn't what it was."""
        if guest.resident:
            self._count(guest, guest.persistent_bytes)
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
