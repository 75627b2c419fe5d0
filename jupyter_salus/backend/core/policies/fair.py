"""`fair`: device time in the ratio of the weights, and short cells first.

Virtual time of a session is its device time by its weight; the smallest goes first. A session that comes (back) starts
at the smallest of those that want the device, so that having been away is no advantage and having been there no debt.
The first two seconds of device time in a minute go before everything else (short-cell credit) but are charged like any
other, so that slicing a loop into cells gains nothing.

Accounts are a chain: today a session has its own account alone; an account of its user's before it would make users
share first and their sessions among them second, with no other change than one more number in front of the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config import Config
from .base import Key

if TYPE_CHECKING:
    from ..session import Session


class Fair:
    """The default."""

    name = "fair"
    keeps_room = True
    preempts = False

    def __init__(self, config: Config) -> None:
        self._config = config
        self.pays = config.pays
        self.max_wait_s = config.max_wait_s
        self._weights = {"high": config.weight_high, "normal": config.weight_normal, "low": config.weight_low}

    def key(self, session: Session, now: float) -> Key:
        """Those with credit first, then by virtual time."""
        credit = session.credit_left(now, self._config.credit_s, self._config.credit_window_s)
        return (0.0 if credit > 0.0 else 1.0, session.virtual_s)

    def rotates_s(self, session: Session) -> float | None:
        """At once: each quantum is charged."""
        return 0.0

    def arrived(self, session: Session) -> None:
        """Start at the smallest virtual time of those that want or have the device."""
        device = session.device
        smallest = [one.virtual_s for one in device.holders]
        for key in ((1.0, 0.0), (1.0, 1.0)):
            first = device.waiting.since(key)
            if first is not None and first is not session:
                smallest.append(first.virtual_s)
        if smallest:
            device.virtual_s = max(device.virtual_s, min(smallest))
        session.virtual_s = max(session.virtual_s, device.virtual_s)

    def charge(self, session: Session, seconds: float) -> None:
        """Device time by weight."""
        session.virtual_s += seconds / self._weights[session.priority]
