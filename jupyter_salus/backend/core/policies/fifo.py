"""`fifo`: first come, first served; side by side where it pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config import Config
from .base import Key

if TYPE_CHECKING:
    from ..session import Session


class Fifo:
    """Whoever has a turn keeps it until it wants no more."""

    name = "fifo"
    keeps_room = True
    preempts = False

    def __init__(self, config: Config) -> None:
        self.pays = config.pays
        self.max_wait_s = config.max_wait_s

    def key(self, session: Session, now: float) -> Key:
        """Since when it wants the device; a revoked session keeps its place."""
        return (session.arrived_at,)

    def rotates_s(self, session: Session) -> float | None:
        """Running takes nobody's place away."""
        return None

    def arrived(self, session: Session) -> None:
        """Nothing to count."""

    def charge(self, session: Session, seconds: float) -> None:
        """Nothing to count."""
