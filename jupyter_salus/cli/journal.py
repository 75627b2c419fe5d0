"""`jupyter salus journal`: what happened, in words, oldest first."""

from __future__ import annotations

import argparse
import json
import time

from .connection import add_options, connect, find_session
from .units import positive, printable


def configure(parser: argparse.ArgumentParser, name: str) -> None:
    """Called by the command line."""
    add_options(parser)
    parser.add_argument("session", nargs="?", metavar="SESSION", help="only what concerns this one")
    parser.add_argument("--last", type=positive, metavar="N", help="only the last N entries")


def run(arguments: argparse.Namespace) -> int:
    """Called by the command line. With `--json` one object with all entries."""
    with connect(arguments) as client:
        entries = client.ask("journal")["entries"]
        if arguments.session is not None:
            wanted = find_session(client.ask("state")["sessions"], arguments.session)["id"]
            entries = [entry for entry in entries if entry["session"] == wanted]
    if arguments.last is not None:
        entries = entries[-arguments.last :]
    if arguments.json:
        print(json.dumps({"entries": entries}))
        return 0
    for entry in entries:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(entry['at']))}  {printable(entry['text'])}")
    return 0
