"""How long an iteration of a plain loop takes: from a few back-edges, looked at about once a second while a turn is held.

A turn that nobody wants is passed by without a look, so that a loop costs nothing; its iterations would be unknown then.
Where a framework, `iterations` or `boundary` counts, that is known better, and nothing is looked at.
"""

from __future__ import annotations

import time
from typing import List, Optional

#: From the beginning of a turn to the first look, and between two looks, in seconds.
FIRST_S, EVERY_S = 0.02, 1.0
#: A look ends with so many back-edges, or with the second one after so many seconds.
EDGES, LONG_S = 9, 0.05
#: A look at which no back-edge came is given up after so many seconds; the next one comes later, at the longest after that.
PATIENCE_S, LONGEST_S = 0.1, 16.0


class Rhythm:
    """The looks at one session's loops. `beat` is called in the user's threads, the rest in the link's."""

    def __init__(self) -> None:
        #: Seconds from one back-edge to the next in the running cell, as far as known.
        self.iteration_s: Optional[float] = None
        self._edges: List[float] = []
        self._due = 0.0
        self._pause_s = EVERY_S
        self._looking = False
        #: When a loop was seen to run last; seconds found without one since they were asked for, and until when.
        self._seen = self._still_s = self._still_until = 0.0
        #: The last look found no loop: what has passed since was without one, too.
        self._still = False

    def begin_cell(self) -> None:
        """Another cell: other loops."""
        self.iteration_s = None
        self._pause_s = EVERY_S

    def begin_turn(self) -> None:
        """A turn was granted."""
        self._looking = self._still = False
        self._still_s = 0.0
        now = self._seen = time.monotonic()
        if self.iteration_s is None or now >= self._due:
            self._due = now + FIRST_S

    def looks(self, now: float) -> bool:
        """Whether back-edges are wanted now."""
        if not self._looking and now >= self._due:
            self._looking, self._edges = True, []
        elif self._looking and now - self._due > PATIENCE_S and len(self._edges) < 2:
            self._pause_s = min(2 * self._pause_s, LONGEST_S)
            if not self._edges:
                # When it ended isn't known: in the middle.
                passed_s = now - max(self._seen, self._still_until)
                self._still_s += passed_s if self._still else passed_s / 2
                self._still, self._still_until = True, now
            self.rest(now)
        return self._looking

    def rest(self, now: float) -> None:
        """No look now: it is done, or somebody else counts."""
        self._looking = False
        self._due = now + self._pause_s

    def looped_s(self, since: float, now: float) -> float:
        """Seconds since then in which loops ran, as far as was seen: a cell may wait for a program after its loop."""
        still_s, self._still_s = self._still_s, 0.0
        if self._still:
            still_s += now - self._still_until
            self._still_until = now
        return max(0.0, now - since - still_s)

    def next_s(self, now: float) -> float:
        """Seconds to the next look."""
        return max(FIRST_S, self._due - now)

    def beat(self) -> bool:
        """A back-edge; whether the next one is wanted, too."""
        if not self._looking:
            return False
        now = self._seen = time.monotonic()
        self._still = False
        edges = self._edges
        edges.append(now)
        if len(edges) < 2 or (len(edges) < EDGES and now - edges[0] < LONG_S):
            return True
        self.iteration_s = (now - edges[0]) / (len(edges) - 1)
        self._pause_s = EVERY_S
        self.rest(now)
        return False
