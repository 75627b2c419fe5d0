"""`jupyter salus journal`: what happened, in words, oldest first."""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

from ..errors import UnknownSession
from .connection import add_options, connect, find_session
from .units import positive, printable


def configure(parser: argparse.ArgumentParser, name: str) -> None:
    """Called by the command line."""
    add_options(parser)
    parser.add_argument("session", nargs="?", metavar="SESSION", help="only what concerns this one, gone ones too")
    parser.add_argument("--last", type=positive, metavar="N", help="only the last N entries")


def run(arguments: argparse.Namespace) -> int:
    """Called by the command line. With `--json` one object with all entries."""
    with connect(arguments) as client:
        entries = client.ask("journal")["entries"]
        if arguments.session is not None:
            wanted = _meant(client.ask("state")["sessions"], entries, arguments.session)
            entries = [entry for entry in entries if wanted & {entry["session"], *entry["sessions"]}]
    if arguments.last is not None:
        entries = entries[-arguments.last :]
    if arguments.json:
        print(json.dumps({"entries": entries}))
        return 0
    for entry in entries:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(entry['at']))}  {printable(entry['text'])}")
    return 0


def _meant(sessions: list[dict[str, Any]], entries: list[dict[str, Any]], wanted: str) -> set[str]:
    """The ids of the session that is there, or of those that the journal knows by this id or name. Raises as `find_session`."""
    try:
        return {find_session(sessions, wanted)["id"]}
    except UnknownSession:
        known = {session: name for entry in entries for session, name in entry["sessions"].items()}
        gone = {one for one, name in known.items() if one.startswith(wanted) or name == os.path.basename(wanted)}
        if not wanted or not gone:
            raise
        return gone
