"""The one place where time is read. The core's times are monotonic; people's are seconds since the Unix epoch."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """`now` never goes back and has the event loop's zero; `wall` is what a calendar shows."""

    def now(self) -> float: ...

    def wall(self) -> float: ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Seconds, monotonic: what asyncio's loop counts in as well."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the Unix epoch; may jump when somebody sets the clock."""
        return time.time()
