"""The state as this server holds it: what the backend said last, with what only this server knows filled in.

A row's `here` and the newest name of a notebook are the server's own knowledge; the rest is the backend's. The body of an
answer is encoded once for each revision, however many tabs ask for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..manager.names import Notebook
from ..protocol.messages import StateChanged

Row = dict[str, Any]

#: What a device's policy can be, as the backend knows them.
POLICIES = ("fair", "fifo", "srtf", "pack", "priority")


class HeldState:
    """Empty until the first change, which is whole. `rules`: whether this server's user may set policies; None: not told."""

    def __init__(self, here: Callable[[str], bool], rules: Callable[[], bool] | None = None) -> None:
        self._here = here
        self._rules = rules
        self.revision = 0
        self.as_of = 0.0
        self.backend: Row = {}
        self.devices: list[Row] = []
        self.lanes: list[Row] = []
        self._sessions: dict[str, Row] = {}
        self._notebooks: Mapping[str, Notebook] = {}
        #: Grows when the server's own knowledge changes without a revision of the backend's.
        self._edition = 0
        self._encoded: tuple[str, bytes] | None = None

    def apply(self, change: StateChanged) -> dict[str, tuple[str | None, str | None]]:
        """Take a change over. The sessions whose state changed, each with its state before and after."""
        before = {} if change.previous_revision == 0 else self._sessions
        moved: dict[str, tuple[str | None, str | None]] = {}
        sessions = dict(before)
        for row in change.sessions or ():
            old = self._sessions.get(row["id"], {}).get("state")
            if old != row.get("state"):
                moved[row["id"]] = (old, row.get("state"))
            sessions[row["id"]] = dict(row)
        for gone in change.removed_sessions or ():
            if sessions.pop(gone, None) is not None:
                moved[gone] = (self._sessions[gone].get("state") if gone in self._sessions else None, None)
        self._sessions = sessions
        self.revision, self.as_of = change.revision, change.as_of
        if change.backend is not None:
            self.backend = dict(change.backend)
        if change.devices is not None:
            self.devices = self.offered(change.devices)
        if change.lanes is not None:
            self.lanes = [dict(row) for row in change.lanes]
        self._encoded = None
        return moved

    def count(self, state: Mapping[str, Any]) -> None:
        """Take over the totals of a state that was asked for: they grow without a revision. A newer revision's event is on
        its way, and brings its own."""
        if state["backend"] != self.backend:
            self.backend = dict(state["backend"])
            self._edition += 1
        if state["revision"] != self.revision:
            return
        self.as_of = state["as_of"]
        for row in state["sessions"]:
            if row["id"] in self._sessions:
                self._sessions[row["id"]] = dict(row)
        self._encoded = None

    def unanswered(self) -> None:
        """The backend is connected and doesn't answer."""
        if self.backend.get("healthy"):
            self.backend = {**self.backend, "healthy": False}
            self._edition += 1

    def name(self, notebooks: Mapping[str, Notebook]) -> None:
        """Take over how this server's sessions call their notebooks now."""
        if notebooks != self._notebooks:
            self._notebooks = dict(notebooks)
            self._edition += 1

    def dressed(self, row: Mapping[str, Any]) -> Row:
        """A session's row with what this server knows of it."""
        kernel_id = row.get("kernel_id")
        here = bool(kernel_id) and bool(row.get("own", True)) and self._here(str(kernel_id))
        known = self._notebooks.get(str(kernel_id)) if here else None
        named = {} if known is None else {"name": known.name, "path": known.path}
        return {**row, **named, "here": here}

    def offered(self, devices: Iterable[Mapping[str, Any]]) -> list[Row]:
        """The devices' rows with the policies that may be chosen from here: all of them, or none."""
        if self._rules is None:
            return [dict(row) for row in devices]
        policies = list(POLICIES) if self._rules() else []
        return [{**row, "policies": policies} for row in devices]

    def counts(self) -> bool:
        """Whether totals grow now: somebody has, or wants, a turn."""
        return any(row.get("turn") != "none" for row in self._sessions.values())

    def session(self, id: str) -> Row | None:
        """The row of one session, None where there is no such one."""
        row = self._sessions.get(id)
        return None if row is None else self.dressed(row)

    def sessions(self) -> list[Row]:
        """All rows, in the backend's order."""
        return [self.dressed(row) for row in self._sessions.values()]

    def body(self) -> Row:
        """The state as `GET salus/api/state` answers it."""
        return {
            "revision": self.revision,
            "as_of": self.as_of,
            "backend": self.backend,
            "devices": self.devices,
            "lanes": self.lanes,
            "sessions": self.sessions(),
        }

    @property
    def etag(self) -> str:
        """Differs whenever `body` does, and between backends, which each count revisions from the start."""
        # A kernel that this server just lost, or got, changes `here` and nothing else.
        here = sum(self._here(str(row.get("kernel_id"))) for row in self._sessions.values())
        started = self.backend.get("started_at", 0)
        return f'"{self.backend.get("pid", 0)}-{started}-{self.revision}-{self._edition}-{here}"'

    def encoded(self) -> tuple[str, bytes]:
        """The ETag and the body as JSON."""
        etag = self.etag
        if self._encoded is None or self._encoded[0] != etag:
            self._encoded = (etag, json.dumps(self.body(), separators=(",", ":")).encode())
        return self._encoded

    def event(self, change: StateChanged) -> Row:
        """The data of the Jupyter event that tells of this change, once it is applied."""
        event: Row = {
            "revision": change.revision,
            "previous_revision": change.previous_revision,
            "as_of": change.as_of,
            "sessions": [self.dressed(row) for row in change.sessions or ()],
            "removed_sessions": list(change.removed_sessions or ()),
        }
        if change.backend is not None:
            event["backend"] = self.backend
        if change.devices is not None:
            event["devices"] = self.devices
        if change.lanes is not None:
            event["lanes"] = self.lanes
        return event


def merged(first: StateChanged | None, second: StateChanged) -> StateChanged:
    """Two changes that follow one another as one."""
    if first is None or second.previous_revision == 0:
        return second
    again = {row["id"] for row in second.sessions or ()}
    gone = set(second.removed_sessions or ())
    kept = [row for row in first.sessions or () if row["id"] not in again | gone]
    removed = [one for one in first.removed_sessions or () if one not in again | gone]
    return StateChanged(
        revision=second.revision,
        previous_revision=first.previous_revision,
        as_of=second.as_of,
        backend=second.backend if second.backend is not None else first.backend,
        devices=second.devices if second.devices is not None else first.devices,
        lanes=second.lanes if second.lanes is not None else first.lanes,
        sessions=(*kept, *(second.sessions or ())),
        removed_sessions=(*removed, *(second.removed_sessions or ())),
    )
