"""What the virtual device costs: speeds of sessions that run side by side, hand-overs and moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """The assumptions of one simulation, each an option of the command."""

    #: Device memory that sessions can have, net of reserve and foreign use.
    capacity_bytes: int
    #: Part of its speed that each session loses while others run.
    interference: float = 0.0
    #: Fixed seconds of a move, and the speed of its bytes.
    move_s: float = 0.012
    move_bytes_per_s: float = 40 * GIB
    #: Host memory for evicted bytes; None: unlimited.
    host_bytes: int | None = None
    #: Seconds from one session's last iteration to the next session's first.
    switch_s: float = 0.001

    def device_part(self, shares: Sequence[float]) -> float:
        """How much of the device's time that it wants each of the running sessions gets: all of it up to a sum of 1."""
        total = sum(shares)
        return 1.0 if total <= 1.0 else 1.0 / total

    def speed(self, shares: Sequence[float]) -> float:
        """Speed of each of the sessions with these shares that run side by side, 1 being a session alone."""
        part = self.device_part(shares)
        return part * (1.0 - self.interference) if len(shares) > 1 else part

    def moving_s(self, moved_bytes: int) -> float:
        """Seconds that an eviction or return of so many bytes takes."""
        return self.move_s + moved_bytes / self.move_bytes_per_s
