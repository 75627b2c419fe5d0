"""What pays: the measured speed of sessions side by side, and whether one more lane raises the total.

Speed is a session's speed by its speed alone, so a total of 1 is what taking turns gives. Three things are learned while
sessions run: the seconds of an iteration alone, the same beside others, and the share of the device that a session
uses alone, from the device's busy time where it tells, else from the slow-down itself. From the shares the total of a
set that never ran together is foretold (n sessions with shares that sum to s > 1 run at 1/s each); what is then
measured corrects the foretelling of that device (`slowdown`), so a device that loses more than the shares explain
isn't tried again and again. The correction fades, since other sessions may do better.

A session that never ran alone (300 equal jobs come and go, two at a time) learns its own time from the slow-down of a
neighbour that did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .config import Config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .session import Session

#: Weight of a new measurement; the device's busy time is steadier than a single iteration's.
WEIGHT = 0.3
#: Below this sum of shares nobody slows anybody down, as far as can be measured.
SATURATED = 0.97


def blend(old: float | None, new: float) -> float:
    """A running mean."""
    return new if old is None else old + WEIGHT * (new - old)


class Pace:
    """What was measured on one device."""

    __slots__ = ("_config", "_slowdown", "_slowdown_at", "_typical")

    def __init__(self, config: Config) -> None:
        self._config = config
        self._slowdown = 1.0
        self._slowdown_at = 0.0
        #: Mean of the shares that were learned: the first guess for a newcomer.
        self._typical: float | None = None

    def share(self, session: Session) -> float:
        """The share of a session as far as known: its own, else what is typical, else a half, so that it is tried."""
        if session.share is not None:
            return session.share
        return 0.5 if self._typical is None else self._typical

    def known(self, sessions: Sequence[Session]) -> bool:
        """Whether enough is known to foretell: nothing is before the first iteration on the device was seen alone."""
        if self._typical is not None:
            return True
        return all(session.share is not None or session.alone_s is not None for session in sessions)

    def slowdown(self, now: float) -> float:
        """Measured total by foretold total, fading to 1."""
        if self._slowdown == 1.0:
            return 1.0
        half_lives = (now - self._slowdown_at) / self._config.slowdown_half_life_s
        return 1.0 - (1.0 - self._slowdown) * float(0.5**half_lives)

    def total(self, shares: Sequence[float], now: float) -> float:
        """The total speed of sessions with these shares side by side."""
        count = len(shares)
        if count <= 1:
            return float(count)
        wanted = sum(shares)
        return count * (1.0 if wanted <= 1.0 else 1.0 / wanted) * self.slowdown(now)

    def learn(
        self, session: Session, others: Sequence[Session], iteration_s: float, busy: float | None, now: float
    ) -> bool:
        """Take in one measurement: `others` ran beside it all the time. True if it could change what pays."""
        share_before, alone_before = session.share, session.alone_s
        if not others:
            session.alone_s = blend(session.alone_s, iteration_s)
            if busy is not None:
                self._learn_share(session, busy)
                session.share_alone = True
        else:
            session.beside_s = iteration_s
            self._learn_beside(session, others, iteration_s, busy, now)
            if session.alone_s is not None:
                self._learn_total(session, others, busy is not None, now)
        if (share_before is None) != (session.share is None) or (alone_before is None) != (session.alone_s is None):
            return True
        if share_before is not None and session.share is not None and abs(session.share - share_before) > 0.01:
            return True
        return bool(others)

    def _learn_share(self, session: Session, share: float) -> None:
        session.share = blend(session.share, share)
        self._typical = blend(self._typical, session.share)

    def _learn_beside(
        self, session: Session, others: Sequence[Session], iteration_s: float, busy: float | None, now: float
    ) -> None:
        if session.alone_s is None:
            speeds = [other.alone_s / other.beside_s for other in others if other.alone_s and other.beside_s]
            if speeds:
                session.alone_s = iteration_s * min(sum(speeds) / len(speeds), 1.0)
        if session.alone_s is None:
            # Nobody here ever ran alone: as fast as the shares foretell.
            wanted = sum(self.share(one) for one in (session, *others))
            session.alone_s = iteration_s if wanted <= 1.0 else iteration_s / wanted
        if session.share_alone:
            return
        if busy is not None:
            self._learn_share(session, busy * iteration_s * self.slowdown(now) / session.alone_s)
            return
        speed = session.alone_s / iteration_s
        each = 1.0 / (len(others) + 1)
        if speed < SATURATED:
            self._learn_share(session, each / speed)
        elif session.share is None or session.share > each:
            session.share = each

    def _learn_total(self, session: Session, others: Sequence[Session], busy_known: bool, now: float) -> None:
        """Correct the foretelling; without busy times the shares hold the slow-down already."""
        if not busy_known:
            return
        total = 0.0
        shares = []
        for one in (session, *others):
            if not one.alone_s or not one.beside_s or one.share is None:
                return
            total += min(one.alone_s / one.beside_s, 1.0)
            shares.append(one.share)
        wanted = sum(shares)
        foretold = len(shares) * (1.0 if wanted <= 1.0 else 1.0 / wanted)
        measured = min(total / foretold, 1.0)
        self._slowdown = blend(self.slowdown(now), measured)
        self._slowdown_at = now
