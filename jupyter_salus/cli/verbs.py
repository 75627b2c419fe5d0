"""`priority`, `yield`, `evict`, `restore`, `pin`, `policy` and `drain`: one verb on one session or device."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..errors import BadValue, UnknownDevice
from .connection import add_options, connect, find_session
from .units import one_of, printable

PRIORITIES = ("high", "normal", "low")
POLICIES = ("fair", "fifo", "pack", "srtf", "priority")

#: What a person reads after the verb was carried out.
_DONE = {
    "yield": "{name} passes its turn on at its next boundary.",
    "evict": "{name} is on its way to host memory.",
    "restore": "{name} is on its way back.",
}


def configure(parser: argparse.ArgumentParser, name: str) -> None:
    """Called by the command line for each of the verbs."""
    add_options(parser)
    parser.set_defaults(verb=name)
    if name == "policy":
        known = ", ".join(POLICIES)
        parser.add_argument(
            "policy",
            nargs="?",
            type=one_of("policy", POLICIES),
            metavar="NAME",
            help=f"{known} (default: tell the one that it has)",
        )
        parser.add_argument("--device", metavar="ID", help="which device (needed to set it where there are several)")
        return
    if name == "drain":
        parser.add_argument("reason", nargs="?", default="maintenance", metavar="REASON", help="what waiters are told")
        parser.add_argument("--device", metavar="ID", help="which device (needed where there are several)")
        parser.add_argument("--off", action="store_true", help="undo it")
        return
    parser.add_argument("session", metavar="SESSION", help="an id, a unique beginning of one, or a notebook's path")
    if name == "priority":
        parser.add_argument(
            "value", type=one_of("priority", PRIORITIES), metavar="PRIORITY", help=", ".join(PRIORITIES)
        )
    if name == "pin":
        parser.add_argument("--off", action="store_true", help="undo it")


def run(arguments: argparse.Namespace) -> int:
    """Called by the command line. Raises what the backend refuses the verb with."""
    changes_policy = arguments.verb == "policy" and arguments.policy is not None
    with connect(arguments, admin=changes_policy or arguments.verb == "drain") as client:
        state = client.ask("state")
        if changes_policy:
            said = _policy(arguments, client, state)
        elif arguments.verb == "drain":
            said = _drain(arguments, client, state)
        elif arguments.verb == "policy":
            said = _policies(arguments, state)
        else:
            said = _session(arguments, client, state)
    print(json.dumps(said) if arguments.json else printable(said["text"], keep="\n"))
    return 0


def _policies(arguments: argparse.Namespace, state: dict[str, Any]) -> dict[str, Any]:
    found = {row["id"]: row["policy"] for row in state["devices"] if arguments.device in (None, row["id"])}
    if arguments.device is not None and not found:
        raise _unknown(arguments.device, state)
    text = "\n".join(f"{device}: policy {policy}." for device, policy in found.items())
    return {"policies": found, "known": list(POLICIES), "text": f"{text}\nOthers: {', '.join(POLICIES)}."}


def _unknown(device: str, state: dict[str, Any]) -> UnknownDevice:
    there = ", ".join(row["id"] for row in state["devices"])
    return UnknownDevice(f"cannot find a device {device!r}: there is {there or 'none'}")


def _policy(arguments: argparse.Namespace, client: Any, state: dict[str, Any]) -> dict[str, Any]:
    device = _device(arguments.device, state)
    client.act("policy", device, arguments.policy)
    return {"device": device, "policy": arguments.policy, "text": f"{device}: policy {arguments.policy}."}


def _drain(arguments: argparse.Namespace, client: Any, state: dict[str, Any]) -> dict[str, Any]:
    device = _device(arguments.device, state)
    client.act("drain", device, "false" if arguments.off else arguments.reason)
    if arguments.off:
        return {"device": device, "draining": None, "text": f"{device}: turns are given again."}
    text = f"{device}: no new turns ({arguments.reason}); whoever has one goes on to the next boundary."
    return {"device": device, "draining": arguments.reason, "text": text}


def _device(wanted: str | None, state: dict[str, Any]) -> str:
    """The device that is meant; the only one where none is named. Raises `BadValue` and `UnknownDevice`."""
    devices = [row["id"] for row in state["devices"]]
    device = wanted or (devices[0] if len(devices) == 1 else None)
    if device is None:
        raise BadValue(f"cannot tell which device is meant: choose with --device among {', '.join(devices) or 'none'}")
    if device not in devices:
        raise _unknown(device, state)
    return str(device)


def _session(arguments: argparse.Namespace, client: Any, state: dict[str, Any]) -> dict[str, Any]:
    row = find_session(state["sessions"], arguments.session)
    name = row["name"] or row["id"][:8]
    if arguments.verb == "priority":
        client.act("priority", row["id"], arguments.value)
        return {"session": row["id"], "priority": arguments.value, "text": f"{name}: priority {arguments.value}."}
    if arguments.verb == "pin":
        pinned = not arguments.off
        client.act("pinned", row["id"], "true" if pinned else "false")
        text = f"{name} is {'now' if pinned else 'no longer'} pinned."
        if pinned and row["memory_mode"] == "host":
            text += " It changes nothing as long as it is on the host device, which moves no memory."
        return {"session": row["id"], "pinned": pinned, "text": text}
    client.act(arguments.verb, row["id"])
    return {"session": row["id"], "verb": arguments.verb, "text": _DONE[arguments.verb].format(name=name)}
