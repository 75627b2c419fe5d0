"""`fair`: device time in the ratio of the weights, and short cells first.

Virtual time of a session is its device time by its weight; the smallest goes first. A session that comes (back) starts
at the smallest of those that want the device, so that having been away is no advantage and having been there no debt.
The first two seconds of device time in a minute go before everything else (short-cell credit) but are charged like any
other, so that slicing a loop into cells gains nothing.

Users share first, and a user's sessions share what is their user's: of n equal sessions of a user that want the device
each is charged n times as much as the only one of another user, so that together they get as much as that one. In
general a session's second costs what it would get by its weight among all sessions, by what it gets by its weight among
its user's and its user's among all users. So nobody's key changes when somebody else runs, and with one user it is
device time by weight as if there were no users at all. A new session starts where its user is, not before; the credit is
one for all of a user's sessions.
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
        account = device.accounts[session.user]
        if not account.weight:
            account.virtual_s = max(account.virtual_s, device.virtual_s)
        if not session.turns and device.active_users > bool(account.weight):
            session.virtual_s = max(session.virtual_s, account.virtual_s)

    def charge(self, session: Session, seconds: float) -> None:
        """Device time by weight: of the session among its user's, of the user among all."""
        device = session.device
        account = device.accounts[session.user]
        user_s = seconds / account.user.limits.weight * device.users_weight / device.active_weight
        account.virtual_s += user_s
        if device.active_users > 1:
            session.virtual_s += user_s * account.weight / session.weight
        else:
            session.virtual_s += seconds / session.weight
