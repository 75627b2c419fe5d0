"""Boundaries at the back-edges of the user's own loops, armed only while a turn is wanted, revoked or yet to be asked for.

`monitoring` serves Python 3.12 and later, in all threads; `pending` 3.10 and 3.11, in the main thread; 3.9 as 3.10 by
another road. `code` says whose loops they are, `landing` whether the place is one where a turn may pass.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..session import Session


class Loops(Protocol):
    """How the link's thread asks for a boundary at the next back-edge."""

    def arm(self) -> None:
        """Have the next back-edges checked; called again at each tick while it is needed."""

    def disarm(self) -> None:
        """Back to no cost at all."""

    def period_s(self, wanted_s: float) -> float:
        """Seconds until `arm` must be called again, `wanted_s` if there is no hurry."""

    def forked(self) -> None:
        """In a forked child: as `disarm`, whatever other threads were about."""


def loops_of_this_python(session: Session) -> Loops:
    """The loops for the running interpreter."""
    if sys.version_info >= (3, 12):
        from .monitoring import MonitoredLoops

        return MonitoredLoops(session)
    from .pending import PendingLoops

    return PendingLoops(session)
