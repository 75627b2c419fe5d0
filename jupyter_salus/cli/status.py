"""`jupyter salus status`: the state in words, once. `top` shows the same words."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .connection import add_options, connect
from .units import columns, duration, printable, size

HEAD = ("SESSION", "NOTEBOOK", "STATE", "LANE", "PRIORITY", "P", "E", "WAITED", "USED", "TURNS", "ITERATIONS")
#: The columns of `HEAD` that are numbers.
RIGHT = (5, 6, 7, 8, 9, 10)
#: Whoever runs or waits comes first, where a screen hasn't room for all.
_ORDER = ("running", "yielding", "waiting", "restoring", "evicting", "holding", "evicted")


def configure(parser: argparse.ArgumentParser, name: str) -> None:
    """Called by the command line."""
    add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Called by the command line."""
    with connect(arguments) as client:
        state = client.ask("state")
    print(json.dumps(state) if arguments.json else text_of(state))
    return 0


def text_of(state: dict[str, Any]) -> str:
    """The whole state as text."""
    lines = [heading(state), *(device_line(state, row) for row in state["devices"]), ""]
    if not state["sessions"]:
        return "\n".join([*lines, "No sessions."])
    lines.append(columns(HEAD, [cells(row) for row in in_order(state["sessions"])], RIGHT))
    said = list(reasons(state))
    return "\n".join([*lines, *([""] if said else []), *said])


def heading(state: dict[str, Any]) -> str:
    """Which backend this is."""
    backend = state["backend"]
    since = duration(max(0.0, state["as_of"] - backend["started_at"]))
    return f"Backend {backend['version']}, pid {backend['pid']}, up {since}"


def device_line(state: dict[str, Any], row: dict[str, Any]) -> str:
    """A device: its memory, policy and lanes."""
    lanes = [lane for lane in state["lanes"] if lane["device"] == row["id"]]
    parts = [
        f"{size(row['free_bytes'])} free of {size(row['capacity_bytes'])}",
        f"{size(row['foreign_bytes'])} used by others",
        f"policy {row['policy']}",
        f"{len(lanes)} lane{'' if len(lanes) == 1 else 's'}",
    ]
    if row.get("draining"):
        parts.append(f"no new turns: {row['draining']}")
    return f"Device {row['id']} ({row['name']}): {', '.join(parts)}"


def in_order(sessions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those who run or wait first; lanes together, waiters by position."""

    def place(row: dict[str, Any]) -> tuple[str, int, int, str]:
        state = row["state"]
        rank = _ORDER.index(state) if state in _ORDER else len(_ORDER)
        return (row["lane"] or "~", rank, row["position"] or 0, row["name"] or "")

    return sorted(sessions, key=place)


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """What stands below `HEAD` for a session."""
    return (
        row["id"][:8],
        row["name"] or row["path"] or _anonymous(row),
        _state(row),
        row["lane"] or "–",
        row["priority"] + (" (pinned)" if row["pinned"] else ""),
        size(row["persistent_bytes"]),
        size(row["ephemeral_bytes"]),
        duration(row["waited_s"]),
        duration(row["used_s"]),
        str(row.get("turns", 0)),
        str(row["iterations"]),
    )


def reasons(state: dict[str, Any]) -> Iterator[str]:
    """A line, fit for a terminal, for each session that waits for something or isn't managed."""
    for row in state["sessions"]:
        if row["reason"] or not row.get("managed", True):
            yield printable(_reason(row))


def _anonymous(row: dict[str, Any]) -> str:
    """Other people's notebooks have no name for us."""
    if row.get("own", True):
        return "–"
    return f"({row['user']}'s)" if row.get("user") else "(another user's)"


def _state(row: dict[str, Any]) -> str:
    if not row.get("managed", True):
        return "not managed"
    if row["state"] == "waiting" and row["position"]:
        return f"waiting ({row['position']})"
    if row["state"] == "running" and row["sharing_with"]:
        return "running in turn"
    return str(row["state"])


def _reason(row: dict[str, Any]) -> str:
    name = row["name"] or row["id"][:8]
    if not row.get("managed", True):
        return f"{name}: {row.get('unmanaged_reason') or 'not managed'}"
    since = ""
    if row["waiting_since"]:
        since = f" (for {duration(max(0.0, time.time() - row['waiting_since']))})"
    return f"{name}: {row['reason']['text']}{since}"
