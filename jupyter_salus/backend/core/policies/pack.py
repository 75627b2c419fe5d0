"""`pack`: most parallel, fewest moves, then least remaining work.

Nobody's turn ends for another, so that nothing moves without need; what fits beside those that run goes first by being
the first that fits. Residents come before those that would have to return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config import Config
from ..transitions import Residency
from .base import Key
from .srtf import remaining_s

if TYPE_CHECKING:
    from ..session import Session


class Pack:
    """For the shortest total time."""

    name = "pack"
    keeps_room = False
    preempts = False

    def __init__(self, config: Config) -> None:
        self.pays = config.pays
        self.max_wait_s = config.max_wait_s

    def key(self, session: Session, now: float) -> Key:
        """Those that run first, then residents, then the least remaining work, the unknown last."""
        if session.holds and not session.starved_turn:
            return (-1.0,)
        out = session.residency is Residency.EVICTED
        left = remaining_s(session)
        return (float(out), float("inf") if left is None else left)

    def rotates_s(self, session: Session) -> float | None:
        """Running takes nobody's place away."""
        return None

    def arrived(self, session: Session) -> None:
        """Nothing to count."""

    def charge(self, session: Session, seconds: float) -> None:
        """Nothing to count."""
