"""The way from the command line to a backend, and to the session that a person means."""

from __future__ import annotations

import argparse
import os
import stat
from typing import Any

from ..errors import BadAddress, BadValue, UnknownSession
from ..protocol.address import Address, check_reachable, find
from ..protocol.client import Client


def add_options(parser: argparse.ArgumentParser) -> None:
    """`--socket` and `--json`, which every command that asks a backend has."""
    parser.add_argument("--socket", metavar="PATH", help="the backend's socket (default: where your notebooks look)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def address(arguments: argparse.Namespace) -> Address:
    """The address that the options and the environment name. Raises `BadAddress`."""
    return find(os.environ, arguments.socket)


def connect(arguments: argparse.Namespace, admin: bool = False) -> Client:
    """A connection to the backend. Raises `BackendGone` or `BadAddress`.

    `admin`: over the admin socket where this user reaches it, for verbs that a user socket refuses.
    """
    found = address(arguments)
    check_reachable(found)
    _check_socket(found.path)
    if admin and os.access(found.admin_path, os.R_OK | os.W_OK):
        return Client(found.admin_path)
    return Client(found.path)


def _check_socket(path: str) -> None:
    """Raises `BadAddress` where what is there is no socket: no backend could be started there either."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # nothing there, or hidden: connecting says which
    if not stat.S_ISSOCK(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "a file"
        raise BadAddress(f"cannot use the socket path {path!r}: it is {what}, and no socket", {"path": path})


def find_session(sessions: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
    """The row that `wanted` means: an id, a unique beginning of one, or a notebook's path.

    Raises `UnknownSession` if there is none and `BadValue`, which names them, if there are several.
    """
    for row in sessions:
        if row["id"] == wanted:
            return row
    found = [row for row in sessions if row["id"].startswith(wanted)] if wanted else []
    if not found:
        found = [row for row in sessions if _is_notebook(row, wanted)]
    if not found:
        known = ", ".join(sorted(str(row["name"] or row["id"][:8]) for row in sessions))
        there = f"it is no id, beginning of an id or notebook of {known}" if known else "there are no sessions now"
        raise UnknownSession(f"cannot find a session {wanted!r}: {there}")
    if len(found) > 1:
        named = ", ".join(f"{row['id'][:12]} ({row['path'] or row['name']})" for row in found)
        raise BadValue(f"cannot tell which session {wanted!r} means: it fits {named}")
    return found[0]


def _is_notebook(row: dict[str, Any], wanted: str) -> bool:
    """A path as the server knows it, as the shell knows it, or the notebook's bare name."""
    path = row["path"]
    if not path:
        return bool(row["name"] == wanted)
    return path == os.path.normpath(wanted) or row["name"] == wanted or os.path.abspath(wanted).endswith("/" + path)
