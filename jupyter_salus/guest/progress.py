"""What a session did in its turn: counted at boundaries, said at most ten times a second and before each release."""

from __future__ import annotations

import sys
import time
from typing import Callable, Optional, Tuple

from ..protocol.turns import Progress, TurnReleased
from .rhythm import Rhythm

#: Progress is said no more often than this, in seconds.
EVERY_S = 0.1
#: Who counted so lately goes on counting, in seconds: its plain loops aren't counted beside that.
LATELY_S = 10.0
#: Frameworks named in the state where the user imported them.
FRAMEWORKS = ("tensorflow", "keras", "tf_keras", "torch", "jax", "sklearn", "lightning")


class Tally:
    """Counts iterations of the running turn; `resident_bytes` tells what lies in RAM where that is governed."""

    def __init__(self, resident_bytes: Callable[[], Optional[int]], rhythm: Rhythm) -> None:
        self._resident_bytes = resident_bytes
        self._rhythm = rhythm
        #: Boundaries that a framework or the user's code named.
        self.iterations = 0
        #: Back-edges of plain loops at which the turn passed.
        self.edges = 0
        #: When something was counted last, monotonic.
        self.counted = 0.0
        self.total_iterations = 0
        self.due = 0.0
        #: Who knows how many iterations are still to come; the first answer that isn't None counts.
        self.tellers: Tuple[Callable[[], Optional[int]], ...] = ()
        self._since = time.monotonic()
        self._cpu_s = time.process_time()

    def begin(self) -> None:
        """A turn was granted."""
        self.iterations = self.edges = 0
        self._rhythm.begin_turn()
        self._since = time.monotonic()
        self._cpu_s = time.process_time()
        self.due = self._since + EVERY_S

    def report(self, epoch: int) -> Progress:
        """What happened since the last report, and the resident bytes now."""
        cpu_s = time.process_time()
        cpu_s, self._cpu_s = max(0.0, cpu_s - self._cpu_s), cpu_s
        iterations, busy_s, remaining = self._done()
        return Progress(
            epoch=epoch,
            iterations=iterations,
            busy_s=busy_s,
            resident_bytes=self._resident_bytes(),
            remaining=remaining,
            cpu_s=cpu_s,
            frameworks=tuple(name for name in FRAMEWORKS if name in sys.modules) or None,
        )

    def passing_on(self, epoch: int, ticket: int) -> TurnReleased:
        """The same in what gives a turn back at a boundary; somebody waits for it, so no more is told than is needed."""
        iterations, busy_s, remaining = self._done()
        return TurnReleased(epoch, True, ticket, self._resident_bytes(), iterations, busy_s, remaining)

    def _done(self) -> Tuple[int, float, Optional[int]]:
        """Iterations since the last report, the seconds that they took, and how many are still to come."""
        now = time.monotonic()
        iterations, busy_s = self._counted(now), max(0.0, now - self._since)
        self.total_iterations += iterations
        self.iterations = self.edges = 0
        self._since, self.due = now, now + EVERY_S
        return iterations, busy_s, self._remaining()

    def _counted(self, now: float) -> int:
        """Iterations since the last report: as counted, else what a plain loop does in that time."""
        if self.iterations:
            self.counted = now
            return self.iterations
        each_s = self._rhythm.iteration_s
        looped_s = self._rhythm.looped_s(self._since, now)
        if each_s is None or now - self.counted < LATELY_S:
            return self.edges
        return max(self.edges, round(looped_s / each_s))

    def _remaining(self) -> Optional[int]:
        for teller in self.tellers:
            try:
                left = teller()
            except Exception:
                continue  # objects of a framework, in whatever state: what they can't tell isn't known
            if left is not None and 0 <= left < 2**62:
                return int(left)
        return None
