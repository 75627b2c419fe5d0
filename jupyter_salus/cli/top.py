"""`jupyter salus top`: the state again and again, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import sys
import time

from .connection import add_options, connect
from .status import text_of
from .units import positive

_CLEAR = "\x1b[H\x1b[J"


def configure(parser: argparse.ArgumentParser, name: str) -> None:
    """Called by the command line."""
    add_options(parser)
    parser.add_argument("--interval", type=_seconds, default=1.0, metavar="S", help="seconds between two looks (1)")
    parser.add_argument("--count", type=positive, metavar="N", help="end after N looks (default: at Ctrl-C)")


def run(arguments: argparse.Namespace) -> int:
    """Called by the command line. With `--json` one object a line."""
    left = arguments.count
    try:
        with connect(arguments) as client:
            while left is None or left > 0:
                state = client.ask("state")
                if arguments.json:
                    print(json.dumps(state), flush=True)
                else:
                    start = _CLEAR if sys.stdout.isatty() else ""
                    print(f"{start}{text_of(state)}\n", flush=True)
                if left is not None:
                    left -= 1
                    if not left:
                        break
                time.sleep(arguments.interval)
    except KeyboardInterrupt:
        print()
    return 0


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"cannot look every {text} s: between 0.1 and 3600 is possible")
    return value
