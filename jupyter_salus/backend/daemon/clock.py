"""The one place where time is read. The core's times are monotonic; people's are seconds since the Unix epoch.

The core's time stands while the backend doesn't run (it was stopped, or the machine gave it no processor): no deadline
passes then that nobody could keep, and nobody is charged for it. The loop reads the clock at least once a second, so a
longer pause between two readings is one in which it didn't run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

#: A pause between two readings from which on the backend counts as not having run, in seconds.
STOOD_S = 2.5


class Clock(Protocol):
    """`now` never goes back; `wall` is what a calendar shows."""

    def now(self) -> float: ...

    def wall(self) -> float: ...


class SystemClock:
    """The machine's clocks. Any thread may read them."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._read = monotonic()
        self._passing = threading.Lock()
        #: Seconds that `now` passed over until now.
        self.stood_s = 0.0

    def now(self) -> float:
        """Seconds, monotonic, less those in which nobody read this clock for long."""
        at = self._monotonic()
        if at - self._read > STOOD_S:
            self._pass_over(at)
        self._read = at
        return at - self.stood_s

    def _pass_over(self, at: float) -> None:
        with self._passing:
            pause_s = at - self._read
            if pause_s > STOOD_S:  # no other thread has seen to it
                self.stood_s += pause_s
                self._read = at

    def wall(self) -> float:
        """Seconds since the Unix epoch; may jump when somebody sets the clock."""
        return time.time()
