"""A clock that moves only when it is told to."""

from __future__ import annotations


class FakeClock:
    """Stands where the backend's clock does. `wall` runs beside `now`, and can be set off by a jump."""

    def __init__(self, now: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._now = now
        self._offset = wall - now

    def now(self) -> float:
        """Seconds, monotonic."""
        return self._now

    def wall(self) -> float:
        """Seconds since the Unix epoch."""
        return self._now + self._offset

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises `ValueError` for a step back: a monotonic clock has none."""
        if seconds < 0:
            raise ValueError(f"cannot advance a clock by {seconds:g} s: it never goes back")
        self._now += seconds

    def jump(self, seconds: float) -> None:
        """Somebody set the calendar's clock, forth or back; the monotonic one doesn't notice."""
        self._offset += seconds
