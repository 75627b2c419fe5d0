"""Revisions of the state and who is told of them: the first change at once, then at most four a second.

A revision is made when something visible changed since the last one, at the next quiet moment of the loop; so a burst of
events is one revision. Each row remembers the revision that it changed in: a subscriber gets the rows after its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...protocol.messages import StateChanged, WaitExplained
from ..core.scheduler import Scheduler
from ..devices.base import Device
from .clock import Clock
from .connections import Connection
from .history import History
from .records import Records
from .state import Look, Row, Rows, device_look, lane_look, rows, seen_by, session_look, with_names
from .users import Owner

#: Seconds between two revisions at least, and between two changes of the soft part of a row.
SPACING_S = 0.25
SOFT_S = 1.0
#: Rows a second at most that are told for their soft part alone: in a queue of hundreds all places change all the time.
SOFT_ROWS = 50


@dataclass(slots=True)
class _Shown:
    """A row as it was shown last: in which revision, when, and what of it was visible."""

    row: Row
    revision: int
    at: float
    look: Look


@dataclass(slots=True)
class _Wait:
    """A wait that its guest is told the reason of: what was told, and when."""

    ticket: int
    told: tuple[Any, ...] | None = None
    at: float = float("-inf")


@dataclass(slots=True)
class _Table:
    look: Callable[[Row], Look]
    shown: dict[str, _Shown] = field(default_factory=dict)
    #: The revision in which a row went, by id; pruned with the oldest subscriber.
    removed: dict[str, int] = field(default_factory=dict)
    #: The last revision in which any row changed or went.
    revision: int = 0


class Feed:
    """Keeps the state's revision. `backend` is the state's own row; `users_named`: whether users see each other's names."""

    def __init__(
        self,
        scheduler: Scheduler,
        records: Records,
        devices: Mapping[str, Device],
        clock: Clock,
        history: History,
        backend: Callable[[], Row],
        users_named: bool = True,
    ) -> None:
        self.revision = 0
        self._scheduler = scheduler
        self._records = records
        self._devices = devices
        self._clock = clock
        self._history = history
        self._backend = backend
        self._users_named = users_named
        self._backend_shown: Row = {}
        self._backend_revision = 0
        self._tables = {
            "devices": _Table(device_look),
            "lanes": _Table(lane_look),
            "sessions": _Table(session_look),
        }
        #: Who had and who wanted each lane when the lanes were told last.
        self._seats: dict[str, tuple[Any, ...]] = {}
        self._as_of = 0.0
        self._subscribers: dict[Connection, int] = {}
        self._waits: dict[str, _Wait] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._told_at = float("-inf")
        self._dirty = True

    def touch(self) -> None:
        """Something may have changed: look at the next quiet moment, but not sooner than the spacing allows."""
        self._dirty = True
        self._soon()

    def explain(self, core_id: str, ticket: int) -> None:
        """Tell the guest of a waiting session why it waits, with the next look, and again when that changes."""
        self._waits[core_id] = _Wait(ticket)

    def subscribe(self, connection: Connection) -> None:
        """From now on tell this peer; the first time the whole state, at once."""
        self.refresh()
        self._subscribers[connection] = 0
        self._tell(connection)

    def unsubscribe(self, connection: Connection) -> None:
        """The peer is gone."""
        self._subscribers.pop(connection, None)

    def state(self, connection: Connection) -> Row:
        """The whole state of this moment, as the viewer may see it."""
        self.refresh()
        self._soon()
        return {
            "revision": self.revision,
            "as_of": self._as_of,
            "backend": self._backend_shown,
            **{name: self._seen(connection, name, 0) for name in self._tables},
        }

    def row(self, connection: Connection, table: str, id: str) -> Row | None:
        """One row of this moment, as the viewer may see it."""
        self.refresh()
        shown = self._tables[table].shown.get(id)
        return self._view(connection, table, shown.row) if shown is not None else None

    def stop(self) -> None:
        """No more looks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def refresh(self) -> None:
        """Take a snapshot, and make a revision if something visible changed."""
        now = self._clock.now()
        offset = self._clock.wall() - now
        snapshot = self._scheduler.snapshot(now)
        found = rows(snapshot, self._records, self._devices, lambda at: at + offset)
        self._as_of = now + offset
        self._dirty = False
        self._compare(found, now)
        self._explained(found, now)
        if any(row["state"] == "running" and row["turn"] == "wanted" for row in found.sessions.values()):
            # It had a turn a moment ago; unless it gets the next one soon, it waits.
            self._dirty = True

    # ---- looking ---------------------------------------------------------------------------------------------------------

    def _soon(self) -> None:
        self._later(max(0.0, self._told_at + SPACING_S - self._clock.now()))

    def _later(self, delay: float) -> None:
        """Look after so long, or sooner if that is planned already."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay, self._look)

    def _look(self) -> None:
        self._timer = None
        self._told_at = self._clock.now()
        if self._dirty:
            self.refresh()
        for connection in list(self._subscribers):
            self._tell(connection)
        if self._dirty:
            # Something is too young to be told: look again when it may be.
            self._later(SOFT_S)

    def _compare(self, found: Rows, now: float) -> None:
        revision = self.revision + 1
        changed = False
        backend = self._backend()
        if backend != self._backend_shown:
            self._backend_shown, self._backend_revision, changed = backend, revision, True
        for name, rows_now in (("devices", found.devices), ("lanes", found.lanes), ("sessions", found.sessions)):
            table = self._tables[name]
            if self._compare_table(table, rows_now, revision, now, sessions=name == "sessions"):
                table.revision = revision
                changed = True
        self._seat(found.lanes, revision)
        if changed:
            self.revision = revision
        if not self._subscribers:
            for table in self._tables.values():
                table.removed.clear()

    def _seat(self, found: dict[str, Row], revision: int) -> None:
        """Lanes go with the sessions: whoever is told that a session ended its turn sees it leave its lane, too."""
        lanes = self._tables["lanes"]
        seats = {id: (row["holder"], *row["waiting"]) for id, row in found.items()}
        if self._tables["sessions"].revision == revision and seats != self._seats:
            lanes.revision = revision
        if lanes.revision == revision:
            self._seats = seats

    def _compare_table(self, table: _Table, found: dict[str, Row], revision: int, now: float, sessions: bool) -> bool:
        changed = False
        for id, row in found.items():
            shown = table.shown.get(id)
            look = table.look(row)
            if sessions:
                stays = shown is not None and shown.row["state"] == row["state"]
                row["state_since"] = shown.row["state_since"] if shown is not None and stays else self._as_of
            if shown is not None and self._stands(shown, look, now):
                self._dirty = self._dirty or look.soft != shown.look.soft
                shown.row = row
                continue
            table.shown[id] = _Shown(row, revision, now, look)
            table.removed.pop(id, None)
            changed = True
            if sessions:
                self._history.note(revision, self._as_of, row)
        for id in table.shown.keys() - found.keys():
            row = table.shown.pop(id).row
            table.removed[id] = revision
            changed = True
            if sessions:
                self._history.note(revision, self._as_of, {**row, "state": "closed", "lane": None})
        if len(table.shown) != len(found) or list(table.shown) != list(found):
            table.shown = {id: table.shown[id] for id in found}
        return changed

    @property
    def _soft_s(self) -> float:
        return max(SOFT_S, len(self._tables["sessions"].shown) / SOFT_ROWS)

    def _stands(self, shown: _Shown, look: Look, now: float) -> bool:
        """Whether what people saw of a row may stand: it is the same, or its soft parts are too young to be told."""
        return look.firm == shown.look.firm and (look.soft == shown.look.soft or now - shown.at < self._soft_s)

    def _explained(self, found: Rows, now: float) -> None:
        for core_id, wait in list(self._waits.items()):
            record = self._records.by_core.get(core_id)
            row = found.sessions.get(self._records.public_id(record)) if record is not None else None
            if record is None or record.connection is None or row is None or row["turn"] != "wanted":
                del self._waits[core_id]
                continue
            if row["reason"] is None:
                continue
            said = WaitExplained(
                ticket=wait.ticket,
                code=row["reason"]["code"],
                text=with_names(row["reason"]["text"], self._named(record.owner)),
                position=row["position"],
                behind=row["reason"]["behind"],
                since=row["waiting_since"],
            )
            told = (said.code, said.text, said.position)
            if told == wait.told:
                continue
            if now - wait.at < self._soft_s:
                self._dirty = True
                continue
            wait.told, wait.at = told, now
            record.connection.say(said)

    # ---- telling ---------------------------------------------------------------------------------------------------------

    def _tell(self, connection: Connection) -> None:
        since = self._subscribers[connection]
        if since == self.revision and since:
            return
        self._subscribers[connection] = self.revision
        tables = self._tables
        oldest = min(self._subscribers.values())
        connection.say(
            StateChanged(
                revision=self.revision,
                previous_revision=since,
                as_of=self._as_of,
                backend=self._backend_shown if self._backend_revision > since or not since else None,
                devices=self._whole(connection, "devices", since),
                lanes=self._whole(connection, "lanes", since),
                sessions=tuple(self._seen(connection, "sessions", since)),
                removed_sessions=tuple(id for id, at in tables["sessions"].removed.items() if at > since)
                if since
                else (),
            )
        )
        for table in tables.values():
            for id in [id for id, at in table.removed.items() if at <= oldest]:
                del table.removed[id]

    def _whole(self, connection: Connection, name: str, since: int) -> tuple[Any, ...] | None:
        if since and self._tables[name].revision <= since:
            return None
        return tuple(self._seen(connection, name, 0))

    def _seen(self, connection: Connection, name: str, since: int) -> list[Row]:
        return [
            self._view(connection, name, shown.row)
            for shown in self._tables[name].shown.values()
            if shown.revision > since
        ]

    def _view(self, connection: Connection, name: str, row: Row) -> Row:
        if name != "sessions":
            return row
        own = self._records.owner(row["id"]) == connection.owner
        viewer = None if connection.admin else connection.owner
        return seen_by(row, own, connection.admin, self._users_named, self._named(viewer))

    def _named(self, viewer: Owner | None) -> Callable[[str], str]:
        return lambda core_id: self._records.named(core_id, viewer, self._users_named)
