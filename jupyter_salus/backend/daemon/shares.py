"""What each user may have, held: told to the core before a user's first session, and again when the rules change.

The daemon holds the number of sessions and the highest priority, since both are decided when a session opens; the core
holds what changes while it runs: weights and bytes. A limit that sinks ends nothing that is there: a session that the
backend knows, or that comes back to it, keeps its seat.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ...errors import BadValue, OverLimit
from ..core import events as core
from ..core.events import Event, PriorityChanged
from .connections import Connection
from .limits import Limits, Rules, read
from .members import Members
from .records import Record, Records
from .users import Owner, groups_of

#: Seconds that a seat is kept for a kernel that restarts.
SEAT_S = 60.0


class Shares:
    """`tell` gives the core an event. `path`: the file of the rules, read now and whenever it changed; None: there is none.

    Raises `BadValue` for a file that can't be used; later that is logged, and what held before goes on.
    """

    def __init__(
        self,
        path: Path | None,
        members: Members,
        records: Records,
        now: Callable[[], float],
        tell: Callable[[Event], None],
        log: logging.Logger,
    ) -> None:
        self.members = members
        self._path = path
        self._records = records
        self._now = now
        self._tell = tell
        self._log = log
        #: Of the file as it was read, and as it was looked at last.
        self._stamp = self._seen = _stamp(path)
        self._rules = _rules(path)
        #: What the core was told, by user.
        self._told: dict[str, Limits] = {}
        #: Seats of kernels that may be restarting: their user, their server, and until when.
        self._kept: dict[str, tuple[str, Connection, float]] = {}
        #: Device time of sessions that are closed, by user.
        self._used_s: Counter[str] = Counter()

    def of(self, user: str) -> Limits:
        """What holds for this user now."""
        member = self.members[user]
        return self._rules.of(user, self.groups(user), member.limits)

    def groups(self, user: str) -> tuple[str, ...]:
        """Those that a hub told of, then those of the Unix account of this name."""
        told = self.members[user].groups
        return (*told, *(one for one in groups_of(user) if one not in told))

    def seat(self, owner: Owner, session: str) -> str | None:
        """Why this session can't have a seat, in words; None: it has one already, or gets one."""
        limits = self._known(owner.name)
        if limits.max_sessions is None:
            return None
        # By session: an earlier incarnation of a kernel that was restarted takes no second seat.
        seated = {one.session for one in self._of(owner.name)} | self._kept_for(owner.name)
        if len(seated) < limits.max_sessions or session in seated:
            return None
        return (
            f"cannot open another session of {owner.name}: there are {len(seated)}, the limit is {limits.max_sessions}; "
            "shut down a notebook that isn't needed"
        )

    def admit(self, owner: Owner, session: str) -> None:
        """Raises `OverLimit` where `seat` has a reason."""
        reason = self.seat(owner, session)
        if reason is not None:
            raise OverLimit(reason, {"limit": "max_sessions"})

    def opening(self, record: Record) -> None:
        """The record's session is about to open: the core learns of its user, and its priority is one that they may have."""
        record.priority = self._known(record.user).capped(record.priority)

    def allow(self, record: Record, priority: str) -> None:
        """Raises `OverLimit` if the session's user may not have this priority."""
        limits = self.of(record.user)
        if limits.capped(priority) != priority:
            raise OverLimit(
                f"cannot give {record.name or record.session} priority {priority}: the highest for {record.user} is "
                f"{limits.max_priority}",
                {"limit": "max_priority"},
            )

    def closed(self, record: Record) -> None:
        """A session is closed; what it used counts on for its user. One whose server is there still, and hasn't said that
        the kernel ended, may be restarting: its seat is kept for a while."""
        if record.server is not None and not record.ended and not record.unmanaged_reason:
            self._kept[record.session] = (record.user, record.server, self._now() + SEAT_S)
        self._used_s[record.user] += record.row.get("used_s", 0.0)

    def left(self, owner: Owner, session: str) -> None:
        """A kernel that isn't there any more won't be started again: nobody's seat is kept for it."""
        kept = self._kept.get(session)
        if kept is not None and kept[0] == owner.name:
            del self._kept[session]
            self._tell(core.SeatLeft(session))

    def look(self) -> None:
        """Read the file again once it changed and stands: half of one that is being written may be a file, too, with fewer
        limits. Called once a second."""
        before, self._seen = self._seen, _stamp(self._path)
        stamp = self._seen
        if stamp == self._stamp or stamp != before:
            return
        self._stamp = stamp
        try:
            self._rules = _rules(self._path)
        except BadValue as error:
            self._log.warning("The limits stay as they were: %s", error)
            return
        self._log.info("The limits were read again from %s", self._path)
        self.apply()

    def apply(self, users: Iterable[str] | None = None) -> None:
        """Have what holds now hold for the sessions that are there; `users`: for these alone."""
        for user in list(self._told) if users is None else users:
            if user not in self._told:
                continue
            limits = self._known(user)
            for record in self._records:
                if record.user == user and record.core_id is not None and not record.leaving:
                    capped = limits.capped(record.priority)
                    if capped != record.priority:
                        record.priority = capped
                        self._tell(PriorityChanged(record.core_id, capped))

    def rows(self, user: str | None = None) -> list[dict[str, Any]]:
        """What each user has and may have; `user`: this one alone."""
        names = dict.fromkeys([*self._told, *self.members.names(), *(one.user for one in self._records)])
        return [self._row(name) for name in names if user in (None, name)]

    def _kept_for(self, user: str) -> set[str]:
        now = self._now()
        self._kept = {id: seat for id, seat in self._kept.items() if seat[1].open and now < seat[2]}
        return {id for id, seat in self._kept.items() if seat[0] == user}

    def _of(self, user: str) -> Iterator[Record]:
        """The user's records that have a seat."""
        return (one for one in self._records if one.user == user and one.counts and not one.unmanaged_reason)

    def _row(self, name: str) -> dict[str, Any]:
        mine = [one for one in self._records if one.user == name and one.shown]
        rows = [one.row for one in mine if one.row]
        return {
            "name": name,
            "groups": list(self.groups(name)),
            "limits": self.of(name).told(),
            "socket": self.members[name].socket,
            "hub_user": self.members[name].hub_user or name,
            "known": name in self.members,
            "sessions": len({one.session for one in self._of(name)}),
            "unmanaged": sum(one.unmanaged_reason is not None for one in mine),
            "waiting": sum(row["turn"] == "wanted" for row in rows),
            "persistent_bytes": sum(row["persistent_bytes"] for row in rows if row["residency"] != "evicted"),
            "evicted_bytes": sum(row["persistent_bytes"] for row in rows if row["residency"] == "evicted"),
            "ephemeral_bytes": sum(row["ephemeral_bytes"] for row in rows),
            "used_s": self._used_s[name] + sum(row["used_s"] for row in rows),
        }

    def _known(self, user: str) -> Limits:
        """What holds for this user, which the core knows from here on."""
        limits = self.of(user)
        if self._told.get(user) != limits and hasattr(core, "UserLimits"):
            self._tell(
                core.UserLimits(
                    user=user,
                    weight=limits.weight,
                    max_priority=limits.max_priority,
                    persistent_bytes=limits.persistent_bytes,
                    host_bytes=limits.host_bytes,
                )
            )
            self._told[user] = limits
        return limits


def _rules(path: Path | None) -> Rules:
    try:
        return read(path) if path is not None else Rules()
    except FileNotFoundError:
        return Rules()  # it may be written later
    except OSError as error:
        raise BadValue(f"cannot read the limits in {path}: {error.strerror}") from error


def _stamp(path: Path | None) -> tuple[int, ...] | None:
    try:
        found = os.stat(path) if path is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino, found.st_size) if found is not None else None
