"""How many iterations are still to come, where a loop or a progress bar tells."""

from __future__ import annotations

import sys
from typing import List, Optional


class Count:
    """One loop of known or unknown length."""

    def __init__(self, total: Optional[int]) -> None:
        self.total = total
        self.done = 0

    def left(self) -> Optional[int]:
        """Iterations of this loop still to come."""
        return None if self.total is None else max(0, self.total - self.done)


class Remaining:
    """The loops over `iterations` that run now, the outermost first, and tqdm's bars."""

    def __init__(self) -> None:
        self._counts: List[Count] = []

    def begin(self, total: Optional[int]) -> Count:
        """A loop begins."""
        count = Count(total)
        self._counts.append(count)
        return count

    def end(self, count: Count) -> None:
        """A loop ended."""
        if count in self._counts:
            self._counts.remove(count)

    def told(self) -> Optional[int]:
        """Iterations still to come: of the innermost loop, and whole ones of it for each that encloses it."""
        counts = self._counts[:]
        if not counts or counts[-1].total is None:
            return bars_left() if not counts else None
        left, length = counts[-1].left() or 0, counts[-1].total
        for outer in reversed(counts[:-1]):
            outer_left = outer.left()
            if outer_left is None:
                return None
            # The running one of the outer loop isn't done before its inner loop ends.
            left += max(0, outer_left - 1) * length
            length *= outer.total or 1
        return left


def bars_left() -> Optional[int]:
    """Iterations that tqdm's innermost open bar has to come; None without tqdm or where it knows no total."""
    bars = getattr(getattr(sys.modules.get("tqdm.std"), "tqdm", None), "_instances", None)
    if not bars:
        return None
    newest = max(list(bars), key=lambda bar: getattr(bar, "start_t", 0.0) or 0.0)
    total, done = getattr(newest, "total", None), getattr(newest, "n", None)
    if total is None or done is None:
        return None
    return max(0, int(total - done))
