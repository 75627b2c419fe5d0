"""Waits at the guard's gate, as far as the guest knows of them: the line in the notebook.

The thread that waits stands in a call of the driver, beneath Python; the backend says why, under ticket 0. The line is
shown by the link's thread, where one cell alone can be meant.
"""

from __future__ import annotations

import os
from typing import Optional

from ..protocol.turns import WaitExplained
from .cell import Cell, Cells
from .line import AFTER_S, RENEW_S, Line

_GUARD = b"libsalus_guard"


class AtGate:
    """What the backend said of a wait at the gate, until a turn ends it."""

    def __init__(self, cells: Cells, line: Line) -> None:
        self._cells = cells
        self._line = line
        self._why: Optional[WaitExplained] = None
        self._began = 0.0
        self._cell: Optional[Cell] = None

    @property
    def waits(self) -> bool:
        """Whether something waits at the gate."""
        return self._why is not None

    def explained(self, why: WaitExplained, now: float) -> None:
        """The backend says what a wait is for; those of other tickets are the guest's own."""
        if why.ticket != 0:
            return
        if self._why is None:
            self._began = now
        self._why = why

    def opened(self) -> None:
        """A turn is there, or nobody waits any more."""
        cell, self._why, self._cell = self._cell, None, None
        self._line.remove(cell)

    def look(self, now: float) -> float:
        """Show the line once it is time; returns the seconds to the next look."""
        cells = list(self._cells.open.values())
        waited_s = now - self._began
        if len(cells) == 1 and self._cell in (None, cells[0]):
            self._cell = cells[0]
            self._line.show(cells[0], waited_s, self._why)
        return max(0.05, AFTER_S - waited_s) if waited_s < AFTER_S else RENEW_S


def has_guard() -> bool:
    """Whether the guard is loaded in this process."""
    if "LD_PRELOAD" not in os.environ:
        return False
    try:
        with open("/proc/self/maps", "rb") as file:
            return _GUARD in file.read()
    except OSError:
        return False  # no such system
