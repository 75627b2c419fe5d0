"""The state as people get it: rows from the core's snapshot and the daemon's records, with absolute times.

A row has everything, its reason's text with sessions in braces; `seen_by` leaves out what isn't the viewer's business, and
names in the text what the viewer may know by name. `Look` tells which changes of a row are
visible: totals and alternation in a lane aren't, reasons and bytes are, but not more often than a person can read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.snapshot import DeviceRow, LaneRow, SessionRow, Snapshot
from ..devices.base import Device
from . import unanswered
from .records import Record, Records

Row = dict[str, Any]

_TURN = {"none": "none", "waiting": "wanted", "blocked": "wanted"}
_RESIDENCY = {"absent": "resident", "leaving": "resident", "closed": "resident"}
#: What another user's session doesn't tell.
_PRIVATE = ("kernel_id", "name", "path", "cell_id", "unmanaged_reason", "unguarded_reason")
#: What of it an admin needs not either: code and its place.
_SECRET = ("cell_id",)


@dataclass(frozen=True, slots=True)
class Rows:
    """A whole state without revision, by public ids."""

    devices: dict[str, Row]
    lanes: dict[str, Row]
    sessions: dict[str, Row]


@dataclass(frozen=True, slots=True)
class Look:
    """What of a row counts as visible: `firm` at once, `soft` when it has stood for a while."""

    firm: tuple[Any, ...]
    soft: tuple[Any, ...]


def rows(snapshot: Snapshot, records: Records, devices: Mapping[str, Device], wall: Callable[[float], float]) -> Rows:
    """The rows of now. `wall` turns the core's times into absolute ones."""
    public = {name: records.public_id(record) for name, record in records.by_core.items()}
    known = {row.id: row for row in snapshot.sessions}
    over = {row.id for row in snapshot.devices if row.over_capacity}
    sessions = {}
    for record in records:
        if record.shown:
            row = known.get(record.core_id) if record.core_id is not None else None
            made = _session(record, row, public, wall)
            made["id"] = records.public_id(record)
            if made["state"] == "running":
                _running(made, made["device"] in over)
            if record.interrupted is not None and record.interrupted.shown:
                made["reason"] = unanswered.reason(made["reason"])
            record.row = made
            sessions[made["id"]] = made
    return Rows(
        devices={row.id: _device(row, devices) for row in snapshot.devices},
        lanes={row.id: _lane(row, public) for row in snapshot.lanes},
        sessions=sessions,
    )


def _running(row: Row, over_capacity: bool) -> None:
    """A session that runs waits for nobody, also while another one of its lane has the turn. What it may have is memory
    that the device hasn't: it goes on because nobody else could."""
    row["position"] = None
    if over_capacity:
        text = "runs although sessions hold more memory than the device has: nobody else could run instead"
        row["reason"] = {"code": "over_capacity", "text": text, "behind": None}
    else:
        row["reason"] = None


def seen_by(row: Row, own: bool, admin: bool, users: bool, named: Callable[[str], str]) -> Row:
    """A session's row for a viewer. `users`: whether others' names may be told; `named`: what the viewer may call a
    session that the reason speaks of."""
    reason = row["reason"]
    seen = row if reason is None else {**row, "reason": {**reason, "text": with_names(reason["text"], named)}}
    if own:
        return seen
    if admin:
        return {**seen, "own": False, **dict.fromkeys(_SECRET)}
    return {**seen, "own": False, "frameworks": [], **dict.fromkeys(_PRIVATE), **({} if users else {"user": None})}


def session_look(row: Row) -> Look:
    """The visible part of a session's row."""
    reason = row["reason"] or {}
    firm = (*(row[name] for name in _FIRM), reason.get("code"))
    if row["state"] != "running":
        # One that shares a lane alternates between having a turn and waiting for it: that is how it runs.
        firm = (*firm, row["turn"])
    held = (row["persistent_bytes"], row["ephemeral_bytes"])
    soft = (*held, row["position"], row["sharing_with"], reason.get("text"), reason.get("behind"))
    return Look(firm, soft)


_FIRM = (
    "state",
    "kernel_id",
    "incarnation",
    "name",
    "path",
    "cell_id",
    "user",
    "residency",
    "lane",
    "device",
    "priority",
    "pinned",
    "frameworks",
    "memory_mode",
    "evictions",
    "managed",
    "unmanaged_reason",
    "unguarded_reason",
)


def device_look(row: Row) -> Look:
    """The visible part of a device's row."""
    firm = (row["name"], row["capacity_bytes"], row["policy"], row["draining"], row["draining"] and row["empty"])
    return Look(firm, (row["foreign_bytes"], row["free_bytes"]))


def lane_look(row: Row) -> Look:
    """The visible part of a lane's row: who has it and who waits alternates, and is told with the rest."""
    return Look((row["device"],), (row["ephemeral_bytes"],))


def _device(row: DeviceRow, devices: Mapping[str, Device]) -> Row:
    return {
        "id": row.id,
        "name": devices[row.id].name if row.id in devices else row.id,
        "capacity_bytes": row.capacity_bytes,
        "foreign_bytes": row.foreign_bytes,
        "free_bytes": row.free_bytes,
        "policy": row.policy,
        "draining": row.draining,
        "empty": row.empty,
    }


def _lane(row: LaneRow, public: Mapping[str, str]) -> Row:
    return {
        "id": row.id,
        "device": row.device,
        "ephemeral_bytes": row.ephemeral_bytes,
        "holder": public.get(row.holder, row.holder) if row.holder is not None else None,
        "waiting": [public.get(one, one) for one in row.waiting],
    }


def _session(
    record: Record,
    row: SessionRow | None,
    public: Mapping[str, str],
    wall: Callable[[float], float],
) -> Row:
    """Without its id."""
    made: Row = {
        "id": "",
        "kernel_id": record.kernel_id,
        "incarnation": record.incarnation,
        "name": record.name or record.session,
        "path": record.path,
        "cell_id": record.cell_id,
        "user": record.user,
        "own": True,
        "here": False,
        "state": "none",
        "state_since": None,
        "turn": "none",
        "residency": "resident",
        "lane": None,
        "device": record.device,
        "priority": record.priority,
        "pinned": record.pinned,
        "persistent_bytes": 0,
        "ephemeral_bytes": 0,
        "position": None,
        "reason": None,
        "sharing_with": [],
        "waiting_since": None,
        "waited_s": 0.0,
        "used_s": 0.0,
        "iterations": 0,
        "frameworks": list(record.frameworks),
        "memory_mode": record.memory_mode,
        "turns": 0,
        "evictions": 0,
        "peak_persistent_bytes": 0,
        "peak_ephemeral_bytes": 0,
        "started_at": record.started_at,
        "managed": record.unmanaged_reason is None,
        "unmanaged_reason": record.unmanaged_reason,
        "unguarded_reason": record.unguarded_reason if record.memory_mode == "plain" else None,
    }
    if row is None:
        return made
    carried = record.carried
    made.update(
        state=_state(record, row),
        turn=_TURN.get(row.turn, "held"),
        residency=_RESIDENCY.get(row.residency, row.residency),
        lane=row.lane,
        priority=row.priority,
        pinned=row.pinned,
        persistent_bytes=row.persistent_bytes,
        ephemeral_bytes=row.ephemeral_bytes,
        position=row.position,
        reason=_reason(row, public),
        sharing_with=[public.get(one, one) for one in row.sharing_with],
        waiting_since=wall(row.waiting_since) if row.waiting_since is not None else None,
        waited_s=row.waited_s + carried.get("waited_s", 0.0),
        used_s=row.used_s + carried.get("used_s", 0.0),
        iterations=row.iterations + int(carried.get("iterations", 0)),
        turns=row.turns + int(carried.get("turns", 0)),
        evictions=row.evictions + int(carried.get("evictions", 0)),
        peak_persistent_bytes=row.peak_persistent_bytes,
        peak_ephemeral_bytes=row.peak_ephemeral_bytes,
    )
    return made


def _state(record: Record, row: SessionRow) -> str:
    if row.state == "holding" and not record.touched:
        # On the host device a kernel holds memory from its start, long before it touches the device.
        return "none"
    if row.state == "running" and row.reason is not None and row.reason.code not in ("turn", "draining"):
        # It had a turn lately, but what it waits for now isn't the next one's end.
        return "waiting"
    return row.state


def _reason(row: SessionRow, public: Mapping[str, str]) -> Row | None:
    if row.reason is None:
        return None
    behind = row.reason.behind
    return {
        "code": row.reason.code,
        "text": row.reason.text,
        "behind": public.get(behind, behind) if behind is not None else None,
    }


def with_names(text: str, named: Callable[[str], str]) -> str:
    """`{session:ID}` in a text of the core, replaced by what the notebook is called."""
    parts = text.split("{session:")
    out = [parts[0]]
    for part in parts[1:]:
        core_id, brace, rest = part.partition("}")
        out.append(named(core_id) + rest if brace else "{session:" + part)
    return "".join(out)
