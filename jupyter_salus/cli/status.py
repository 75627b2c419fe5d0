"""`jupyter salus status`: the state in words, once."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from .connection import add_options, connect
from .units import columns, duration, printable, size

_HEAD = ("SESSION", "NOTEBOOK", "STATE", "LANE", "PRIORITY", "P", "E", "WAITED", "USED", "TURNS", "ITERATIONS")
_RIGHT = (5, 6, 7, 8, 9, 10)


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
    """The state as `status` and `top` show it."""
    backend = state["backend"]
    since = duration(max(0.0, state["as_of"] - backend["started_at"]))
    lines = [f"Backend {backend['version']}, pid {backend['pid']}, up {since}"]
    lines += [_device(state, row) for row in state["devices"]]
    sessions = state["sessions"]
    if not sessions:
        return "\n".join([*lines, "", "No sessions."])
    rows = [
        _row(row)
        for row in sorted(sessions, key=lambda row: (row["lane"] or "~", row["position"] or 0, row["name"] or ""))
    ]
    lines += ["", columns(_HEAD, rows, _RIGHT)]
    reasons = [_reason(row) for row in sessions if row["reason"] or not row.get("managed", True)]
    return "\n".join([*lines, *([""] if reasons else []), *(printable(reason) for reason in reasons)])


def _device(state: dict[str, Any], row: dict[str, Any]) -> str:
    lanes = [lane for lane in state["lanes"] if lane["device"] == row["id"]]
    parts = [
        f"{size(row['free_bytes'])} free of {size(row['capacity_bytes'])}",
        f"{size(row['foreign_bytes'])} used by others",
        f"policy {row['policy']}",
        f"{len(lanes)} lane{'' if len(lanes) == 1 else 's'}",
    ]
    return f"Device {row['id']} ({row['name']}): {', '.join(parts)}"


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["id"][:8],
        row["name"] or row["path"] or "–",
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
