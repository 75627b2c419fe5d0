"""The terminal's whole screen for `top`, drawn by rich; given back as it was when the person has had enough."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .status import HEAD, RIGHT, cells, device_line, heading, in_order, reasons
from .units import duration, printable

#: Colours say nothing that the words don't.
_STYLES = {
    "running": "green",
    "waiting": "yellow",
    "yielding": "yellow",
    "evicting": "cyan",
    "restoring": "cyan",
    "evicted": "blue",
    "leaving": "red",
    "broken": "bold red",
    "none": "dim",
    "holding": "",
    "closed": "dim",
}

_NAME, _STATE = HEAD.index("NOTEBOOK"), HEAD.index("STATE")
#: What a notebook's name keeps where the screen is narrow, and the columns that give way to that, the first first.
_NAME_WIDTH = 20
_GIVE_WAY = tuple(
    HEAD.index(title) for title in ("ITERATIONS", "SESSION", "TURNS", "E", "PRIORITY", "USED", "LANE", "P", "WAITED")
)


class Screen:
    """Entered and left by `with`; keys are read without Enter where the input is a terminal."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, screen=True, auto_refresh=False, vertical_overflow="ellipsis")
        self._stack = ExitStack()

    def __enter__(self) -> Screen:
        self._stack.enter_context(_keys())
        self._stack.enter_context(self._live)
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def show(self, state: dict[str, Any], lost: str | None = None) -> None:
        """Draw the state; `lost` says why there is no younger one."""
        self._live.update(Group(*self._parts(state, lost)), refresh=True)

    def ended_within(self, seconds: float) -> bool:
        """True once `q` was pressed; False after so long."""
        if not sys.stdin.isatty():
            time.sleep(seconds)
            return False
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([sys.stdin], [], [], left)[0] and os.read(sys.stdin.fileno(), 64).lower() in (b"q", b""):
                return True
        return False

    def _parts(self, state: dict[str, Any], lost: str | None) -> Iterator[RenderableType]:
        now = time.strftime("%H:%M:%S", time.localtime(state["as_of"]))
        yield Text.assemble((heading(state), "bold"), f"    {now}    ", ("q ends", "dim"))
        if lost is not None:
            age = duration(max(0.0, time.time() - state["as_of"]))
            yield Text(printable(f"What follows is {age} old: {lost}"), style="bold red")
        for row in state["devices"]:
            yield Text(printable(device_line(state, row)))
            taken = max(0, row["capacity_bytes"] - row["free_bytes"])
            bar = ProgressBar(total=max(1, row["capacity_bytes"]), completed=taken, width=self._console.width)
            # A bar alone ends no line, and would swallow the next device's.
            yield Padding(bar, 0)
        yield Text()
        yield _sessions(state, self._console.width) if state["sessions"] else Text("No sessions.")
        yield Text()
        for reason in reasons(state):
            yield Text(reason)


def _sessions(state: dict[str, Any], width: int) -> Table:
    rows = in_order(state["sessions"])
    lines = [tuple(map(printable, cells(row))) for row in rows]
    table = Table(box=None, expand=True, pad_edge=False, header_style="bold")
    shown = _fitting(lines, width)
    for number in shown:
        table.add_column(
            HEAD[number],
            justify="right" if number in RIGHT else "left",
            no_wrap=True,
            ratio=1 if number == _NAME else None,
        )
    for row, line in zip(rows, lines, strict=True):
        style = "dim" if not row.get("managed", True) else _STYLES.get(str(row["state"]), "")
        table.add_row(*(Text(line[number], style=style if number == _STATE else "") for number in shown))
    return table


def _fitting(lines: list[tuple[str, ...]], width: int) -> list[int]:
    """The columns for which there is room beside a readable name: figures that are cut short would lie."""
    widths = [max(len(cell) for cell in column) for column in zip(HEAD, *lines, strict=True)]
    widths[_NAME] = min(widths[_NAME], _NAME_WIDTH)
    shown = list(range(len(HEAD)))
    for number in _GIVE_WAY:
        if sum(widths[one] + 1 for one in shown) <= width:
            break
        shown.remove(number)
    return shown


@contextmanager
def _keys() -> Iterator[None]:
    """Keys come one by one and unseen, and Ctrl-C still interrupts."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
