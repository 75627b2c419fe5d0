"""`jupyter salus top`: the state again and again, until Ctrl-C or `q`; on a terminal as a screen, else as text."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, Protocol

from ..errors import BackendGone
from ..protocol.client import Client
from .connection import add_options, connect
from .status import text_of
from .units import positive


class Display(Protocol):
    """Where a state is shown. `lost` says why there is none that is younger."""

    def show(self, state: dict[str, Any], lost: str | None) -> None: ...

    def ended_within(self, seconds: float) -> bool:
        """Wait so long, or until the person has had enough."""
        ...


def configure(parser: argparse.ArgumentParser, name: str) -> None:
    """Called by the command line."""
    add_options(parser)
    parser.add_argument("--interval", type=_seconds, default=1.0, metavar="S", help="seconds between two looks (1)")
    parser.add_argument("--count", type=positive, metavar="N", help="end after N looks (default: at Ctrl-C or q)")


def run(arguments: argparse.Namespace) -> int:
    """Called by the command line. With `--json` one object a line. Raises `BackendGone` where there is no backend; one
    that goes later is looked for again on a terminal, with what was seen last and its age on the screen."""
    with _Source(arguments) as source:
        try:
            if arguments.json or not sys.stdout.isatty():
                return _follow(source, _Text(arguments.json), arguments, patient=False)
            from .screen import Screen

            with Screen() as screen:
                return _follow(source, screen, arguments, patient=True)
        except KeyboardInterrupt:
            return 0


def _follow(source: _Source, display: Display, arguments: argparse.Namespace, patient: bool) -> int:
    shown = 0
    while True:
        display.show(source.state, source.lost)
        shown += 1
        if shown == arguments.count or display.ended_within(arguments.interval):
            return 0
        source.look(patient)


class _Text:
    """The states one after the other."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def show(self, state: dict[str, Any], lost: str | None) -> None:
        print(json.dumps(state) if self._as_json else f"{text_of(state)}\n", flush=True)

    def ended_within(self, seconds: float) -> bool:
        time.sleep(seconds)
        return False


class _Source:
    """The state as it was at the last look, and why there is no younger one if the last look failed."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._client: Client | None = connect(arguments)
        self.state: dict[str, Any] = self._client.ask("state")
        self.lost: str | None = None

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._client is not None:
            self._client.close()

    def look(self, patient: bool) -> None:
        """Raises `BackendGone` unless `patient`."""
        try:
            if self._client is None:
                self._client = connect(self._arguments)
            self.state, self.lost = self._client.ask("state"), None
        except BackendGone as error:
            if not patient:
                raise
            if self._client is not None:
                self._client.close()
            self._client, self.lost = None, error.message


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"cannot look every {text} s: between 0.1 and 3600 is possible")
    return value
