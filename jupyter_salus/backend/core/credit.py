"""Short-cell credit: the first seconds of device time in a window go before everybody else's.

Whoever uses little of a device in a window is served at once; whoever slices a long piece of work finer gains nothing,
since the credit is a sum of seconds. A window begins with the first use after the last one.
"""

from __future__ import annotations


class Credit:
    """What one session, or one user on a device, has had of it."""

    __slots__ = ("start", "used_s")

    def __init__(self, now: float, window_s: float) -> None:
        # The first window begins with the first use.
        self.start = now - window_s
        self.used_s = 0.0

    def left(self, now: float, credit_s: float, window_s: float) -> float:
        """Seconds that are left; above 0 its owner is interactive."""
        if now >= self.start + window_s:
            return credit_s
        return max(credit_s - self.used_s, 0.0)

    def use(self, now: float, seconds: float, window_s: float) -> None:
        """Count device time that ends now."""
        if now - seconds >= self.start + window_s:
            self.start = now - seconds
            self.used_s = 0.0
        self.used_s += seconds
