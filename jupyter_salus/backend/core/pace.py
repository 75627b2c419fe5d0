"""What pays: the measured speed of sessions side by side, and whether one more lane raises the total.

Speed is a session's speed by its speed alone, so a total of 1 is what taking turns gives. Three things are learned while
sessions run: the seconds of an iteration alone, the same beside others, and the share of the device that a session
uses alone, from the device's busy time where it tells, else from the slow-down itself. From the shares the total of a
set that never ran together is foretold (n sessions with shares that sum to s > 1 run at 1/s each); what is then
measured corrects the foretelling of that device (`slowdown`), so a device that loses more than the shares explain
isn't tried again and again. The correction fades, since other sessions may do better. Where no busy time is told and
nobody is slowed down, shares are only bounded; they are guessed low enough that one more lane is tried.

A session that never ran alone (300 equal jobs come and go, two at a time) has its own time reckoned from the slow-down of
a neighbour that did. Where nobody did for a while, what is known is stale: the lanes close until one was seen alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .config import Config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .session import Session

#: Weight of a new measurement; the device's busy time is steadier than a single iteration's.
WEIGHT = 0.3
#: A session that goes so fast beside others, by its speed alone, isn't slowed down as far as can be told: what one more
#: lane does must be tried, so the shares are guessed to leave room for it until a slow-down says what they are.
UNSLOWED = 0.9
GUESSED = 0.8

#: Changes below this aren't worth a new plan; hysteresis is larger.
NOTICED = 0.005

#: A measurement beside others looks at all of them, so it is taken up only so often for each of them, in seconds.
EACH_S = 0.01


def blend(old: float | None, new: float) -> float:
    """A running mean."""
    return new if old is None else old + WEIGHT * (new - old)


class Pace:
    """What was measured on one device."""

    __slots__ = ("_config", "_seen_at", "_slowdown", "_slowdown_at", "_typical")

    def __init__(self, config: Config) -> None:
        self._config = config
        self._slowdown = 1.0
        self._slowdown_at = 0.0
        #: When last somebody ran whose time alone was measured.
        self._seen_at = float("-inf")
        #: Mean of the shares that were learned: the first guess for a newcomer.
        self._typical: float | None = None

    def share(self, session: Session) -> float:
        """The share of a session as far as known: its own, else what is typical, else a half, so that it is tried."""
        if session.share is not None:
            return session.share
        return 0.5 if self._typical is None else self._typical

    def fresh(self, longest_s: float, now: float) -> bool:
        """Whether what one more lane does can be foretold though none of those that run, with iterations of at most
        `longest_s`, was seen alone."""
        return now - self._seen_at <= max(self._config.stale_s, self._config.stale_iterations * longest_s)

    def slowdown(self, now: float) -> float:
        """Measured total by foretold total, fading to 1."""
        if self._slowdown == 1.0:
            return 1.0
        half_lives = (now - self._slowdown_at) / self._config.slowdown_half_life_s
        return 1.0 - (1.0 - self._slowdown) * float(0.5**half_lives)

    def total(self, count: int, wanted: float, now: float) -> float:
        """The total speed of so many sessions side by side whose shares sum to `wanted`."""
        if count <= 1:
            return float(count)
        return count / max(wanted, 1.0) * self.slowdown(now)

    def most_share(self, count: int, wanted: float, needed: float, now: float) -> float:
        """The largest share with which one more beside so many sessions makes the total `needed` times as large; below 0
        there is none."""
        most = (count + 1) * self.slowdown(now) / (self.total(count, wanted, now) * needed)
        return most - wanted if most >= 1.0 else -1.0

    def learn(
        self, session: Session, others: Sequence[Session], iteration_s: float, busy: float | None, now: float
    ) -> bool:
        """Take in one measurement: `others` ran beside it all the time. True if it could change what pays."""
        before = (self.share(session), session.alone_seen, self.slowdown(now))
        if not others:
            session.alone_s = blend(session.alone_s if session.alone_seen else None, iteration_s)
            session.alone_seen = True
            self._seen_at = now
            if busy is not None:
                self._learn_share(session, busy)
                session.share_alone = True
        else:
            count = len(others) + 1
            session.beside_s = iteration_s
            if session.beside_count == count and now < session.beside_at + count * EACH_S:
                return False
            session.beside_count, session.beside_at = count, now
            self._learn_beside(session, others, iteration_s, busy, now)
            self._learn_total(session, others, busy is not None, now)
        return (
            before[1] != session.alone_seen
            or abs(self.share(session) - before[0]) > NOTICED
            or abs(self.slowdown(now) - before[2]) > NOTICED
        )

    def _learn_share(self, session: Session, share: float) -> None:
        session.share = blend(session.share, share)
        self._typical = blend(self._typical, session.share)

    def _learn_beside(
        self, session: Session, others: Sequence[Session], iteration_s: float, busy: float | None, now: float
    ) -> None:
        if not session.alone_seen:
            session.alone_s = blend(session.alone_s, iteration_s * self._speed_beside(session, others, now))
        assert session.alone_s is not None, "seen or reckoned"
        if session.share_alone:
            return
        if busy is not None:
            self._learn_share(session, busy * iteration_s * self.slowdown(now) / session.alone_s)
            return
        speed = session.alone_s / iteration_s
        each = 1.0 / (len(others) + 1)
        if speed < UNSLOWED:
            self._learn_share(session, each / speed)
            session.share_felt = True
            return
        most = each / min(speed, 1.0) if session.share_felt else each * GUESSED
        if session.share is None or session.share > most:
            session.share = most

    def _speed_beside(self, session: Session, others: Sequence[Session], now: float) -> float:
        """How fast a session goes that never ran alone: like its neighbours that did, else as the shares foretell."""
        count = len(others) + 1
        speeds = [
            min(other.alone_s / other.beside_s, 1.0)
            for other in others
            if other.alone_seen and other.alone_s and other.beside_s and other.beside_count == count
        ]
        if speeds:
            return sum(speeds) / len(speeds)
        typical = 0.5 if self._typical is None else self._typical
        wanted = typical + sum(self.share(other) for other in others)
        return self.slowdown(now) / max(wanted, 1.0)

    def _learn_total(self, session: Session, others: Sequence[Session], busy_known: bool, now: float) -> None:
        """Correct the foretelling, from sets of which one at least was seen alone."""
        total = 0.0
        shares: list[float] = []
        seen = False
        for one in (session, *others):
            if not one.alone_s or not one.beside_s or one.share is None or one.beside_count != len(others) + 1:
                return
            seen = seen or one.alone_seen
            total += min(one.alone_s / one.beside_s, 1.0)
            shares.append(one.share)
        if not seen:
            return
        self._seen_at = now
        if not busy_known:
            return  # the shares, learned from the slow-down, hold all of it already
        wanted = sum(shares)
        foretold = len(shares) / max(wanted, 1.0)
        self._slowdown = blend(self.slowdown(now), min(total / foretold, 1.0))
        self._slowdown_at = now
