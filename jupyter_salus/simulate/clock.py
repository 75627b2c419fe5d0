"""The virtual clock: what is to happen at which time, in order; equal times in the order in which they were asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Clock:
    """Time of a simulation in seconds. Jumps from one thing to the next, so a run takes as long as its things take."""

    def __init__(self) -> None:
        self.now = 0.0
        self._asked = 0
        self._things: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Call `action` at this time, or now if it has passed. Nothing is cancelled: an action looks whether it matters."""
        self._asked += 1
        heapq.heappush(self._things, (max(time_s, self.now), self._asked, action))

    def run(self) -> None:
        """Go on until nothing is left to happen."""
        things = self._things
        while things:
            self.now, _, action = heapq.heappop(things)
            action()
