"""`priority`: classes, first come within one; a higher class ends the turn of a lower one and may move it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config import Config
from .base import Key

if TYPE_CHECKING:
    from ..session import Session


class Priority:
    """Strict classes; the starvation bound is shorter here, since a class can be kept waiting for ever."""

    name = "priority"
    keeps_room = True
    preempts = True

    def __init__(self, config: Config) -> None:
        self.pays = config.pays
        self.max_wait_s = min(config.max_wait_priority_s, config.max_wait_s)

    def key(self, session: Session, now: float) -> Key:
        """The class, then since when it wants the device."""
        return (float(session.rank), session.arrived_at)

    def rotates_s(self, session: Session) -> float | None:
        """Running takes nobody's place away."""
        return None

    def arrived(self, session: Session) -> None:
        """Nothing to count."""

    def charge(self, session: Session, seconds: float) -> None:
        """Nothing to count."""
