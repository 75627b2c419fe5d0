"""What all parts of the scheduler share: the tables, the numbers that grow, and the decisions of the event in hand."""

from __future__ import annotations

from collections import Counter

from ...errors import UnknownDevice, UnknownSession
from .config import Config
from .deadlines import Deadlines, Due
from .decisions import Decision
from .device import Device
from .session import Session
from .transitions import Residency, Turn

#: First number of a key: what comes before and after the policy's order.
STARVING, NORMAL, YIELDED, SILENT, OVERGROWN = 0.0, 1.0, 2.0, 3.0, 4.0


class State:
    """The scheduler's memory. Nothing outside `core` sees it."""

    __slots__ = ("config", "deadlines", "devices", "ignored", "leaving", "number", "outbox", "sessions")

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sessions: dict[str, Session] = {}
        #: Sessions whose peer is gone, by id, oldest first: a restarted kernel may be there again under the same id.
        self.leaving: dict[str, list[Session]] = {}
        self.devices: dict[str, Device] = {}
        self.deadlines = Deadlines()
        self.outbox: list[Decision] = []
        #: One sequence for sessions, epochs and moves.
        self.number = 0
        #: Events that came too late, by kind.
        self.ignored: Counter[str] = Counter()

    def next_number(self) -> int:
        """A number that was never given before."""
        self.number += 1
        return self.number

    def session(self, id: str) -> Session:
        """The session of this id. Raises `UnknownSession`."""
        session = self.sessions.get(id)
        if session is None:
            raise UnknownSession(
                f"cannot find session {id!r}: {len(self.sessions)} sessions are known", {"session": id}
            )
        return session

    def device(self, id: str) -> Device:
        """The device of this id. Raises `UnknownDevice`."""
        device = self.devices.get(id)
        if device is None:
            known = ", ".join(self.devices) or "none"
            raise UnknownDevice(f"cannot find device {id!r}: known are {known}", {"device": id})
        return device

    def key(self, session: Session, now: float) -> tuple[float, ...]:
        """The place of a session among all that want its device."""
        if session.starving:
            return (STARVING, session.waiting_since or 0.0)
        if session.overgrown:
            prefix = OVERGROWN
        elif session.silent:
            prefix = SILENT
        elif session.yielded:
            prefix = YIELDED
        else:
            prefix = NORMAL
        return (prefix, *session.device.policy.key(session, now))

    def file(self, session: Session, now: float) -> None:
        """Put a session into its device's orders where it belongs after a change."""
        if session.broken is not None:
            session.device.forget(session)
            return
        session.device.file(session, self.key(session, now) if session.turn is Turn.WAITING else ())

    def look_again(self, device: Device, at: float, now: float) -> None:
        """Make sure that the device is looked at again by `at`, but later than now: rounding must not make a circle."""
        at = max(at, now + self.config.look_s)
        if not now < device.retry_at <= at:
            device.retry_at = at
            self.deadlines.set(at, Due.DEVICE, device)

    def hold(self, session: Session, amount: int) -> None:
        """Give a session so many bytes more outside lanes. Raises `LedgerOverdrawn` and changes nothing."""
        session.device.ledger.take_held(amount)
        self._count(session, amount)

    def observe(self, session: Session, amount: int) -> None:
        """A session has so many bytes more outside lanes, asked or not."""
        session.device.ledger.observe_held(amount)
        self._count(session, amount)

    @staticmethod
    def _count(session: Session, amount: int) -> None:
        session.held_bytes += amount
        if not session.evictable:
            session.device.fixed_bytes += amount

    def charge(self, session: Session, now: float) -> None:
        """Count the device time of a holder up to now."""
        seconds = now - session.charged_at
        session.charged_at = now
        if seconds <= 0.0:
            return
        session.used_s += seconds
        speed = 1.0
        if len(session.device.holders) > 1 and session.alone_s and session.beside_s:
            speed = min(session.alone_s / session.beside_s, 1.0)
        session.work_s += seconds * speed
        session.use_credit(now, seconds, self.config.credit_window_s)
        session.device.policy.charge(session, seconds)

    def interactive(self, session: Session, now: float) -> bool:
        """Whether a session has short-cell credit left."""
        return session.credit_left(now, self.config.credit_s, self.config.credit_window_s) > 0.0

    def can_go(self, session: Session, now: float) -> bool:
        """Whether a session's bytes can be moved out at all."""
        if session.residency is not Residency.RESIDENT or session.refused_until > now:
            return False
        return session.evictable and session.held_bytes > 0
