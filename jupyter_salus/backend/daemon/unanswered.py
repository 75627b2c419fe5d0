"""Interrupts that a kernel hasn't answered: after a while people are told why it goes on.

An interrupt is answered by the end of the cells that were open. The backend doesn't see whether a signal came; that the
cells go on it does see.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

#: An interrupt that isn't answered after so many seconds is shown.
SHOWN_S = 2.0


class Unanswered:
    """One interrupt and the cells that it was for."""

    def __init__(self, cells: Collection[int]) -> None:
        self._cells = frozenset(cells)
        #: It is time to say so.
        self.shown = False

    def answered(self, cells: Collection[int]) -> bool:
        """Whether none of its cells is among those that are open now."""
        return self._cells.isdisjoint(cells)


def reason(waits: dict[str, Any] | None) -> dict[str, Any]:
    """What a row's reason becomes meanwhile; `waits`: what it is without the interrupt."""
    if waits is None:
        why = "its code is in a call that doesn't look at interrupts, or goes on after this one; a restart ends it"
        return {"code": "interrupted", "text": f"was interrupted: {why}", "behind": None}
    return {"code": "interrupted", "text": f"was interrupted, but {waits['text']}", "behind": waits["behind"]}
