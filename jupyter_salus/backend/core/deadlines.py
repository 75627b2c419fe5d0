"""Deadlines: everything that the scheduler does because of the time alone.

A heap with lazy deletion: a deadline names what it was set for (an epoch, a move), and whoever sets the next one
never looks for the old one; when an old one comes up it names something past and does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .device import Device
    from .session import Session


class Due(Enum):
    """What a deadline is for."""

    QUANTUM = "quantum"
    REVOKED = "revoked"
    STARVING = "starving"
    #: A peer that is gone should have given its bytes back.
    LEAVING = "leaving"
    #: A seat that is kept for a session is kept no longer.
    SEAT = "seat"
    #: Look at a device again: a protection, a back-off or a move's expected time is over.
    DEVICE = "device"


@dataclass(slots=True, eq=False)
class Deadline:
    """One deadline. `mark`: the epoch that it was set for."""

    due: Due
    device: Device
    session: Session | None = None
    mark: int = 0


class Deadlines:
    """All deadlines of a scheduler, in order of time, first set first among equals."""

    __slots__ = ("_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._number = 0

    def set(self, at: float, due: Due, device: Device, session: Session | None = None, mark: int = 0) -> None:
        """From `at` on `take` gives this deadline."""
        self._number += 1
        heappush(self._heap, (at, self._number, Deadline(due, device, session, mark)))

    def next(self) -> float | None:
        """The earliest time at which something may be due; None: never."""
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> Deadline | None:
        """The earliest deadline that is due, taken out."""
        if self._heap and self._heap[0][0] <= now:
            return heappop(self._heap)[2]
        return None
