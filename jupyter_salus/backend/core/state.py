"""What all parts of the scheduler share: the tables, the numbers that grow, and the decisions of the event in hand."""

from __future__ import annotations

from collections import Counter

from ...errors import UnknownDevice, UnknownSession
from .config import Config
from .credit import Credit
from .deadlines import Deadlines, Due
from .decisions import Decision
from .device import Device
from .events import Event
from .session import Session
from .transitions import Residency, Turn
from .user import Account, User

#: First number of a key: what comes before and after the policy's order.
STARVING, CLAIMING, NORMAL, YIELDED, SILENT, OVERGROWN, OUTSIDE = 0.0, 0.25, 1.0, 2.0, 3.0, 4.0, 5.0


class State:
    """The scheduler's memory. Nothing outside `core` sees it."""

    __slots__ = (
        "config",
        "deadlines",
        "devices",
        "ignored",
        "leaving",
        "look",
        "number",
        "outbox",
        "sessions",
        "unsettled",
        "users",
        "weights",
    )

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sessions: dict[str, Session] = {}
        #: Sessions whose peer is gone, by id, oldest first: a restarted kernel may be there again under the same id.
        self.leaving: dict[str, list[Session]] = {}
        self.devices: dict[str, Device] = {}
        self.users: dict[str, User] = {}
        #: Devices, beside the one that the event in hand is about, to be looked at before it is done.
        self.look: dict[Device, None] = {}
        #: Users whose bytes on devices changed and are limited.
        self.unsettled: dict[User, None] = {}
        self.weights = {"high": config.weight_high, "normal": config.weight_normal, "low": config.weight_low}
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

    def ignore(self, event: Event) -> Device | None:
        """An event came too late: it is counted, and no device need be looked at."""
        self.ignored[type(event).__name__] += 1
        return None

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

    def user(self, name: str) -> User:
        """The user of this name, known from now on."""
        user = self.users.get(name)
        if user is None:
            user = self.users[name] = User(name)
        return user

    def account(self, user: User, device: Device, now: float) -> Account:
        """The user's account on a device, opened if need be."""
        account = device.accounts.get(user)
        if account is None:
            account = device.accounts[user] = Account(user, Credit(now, self.config.credit_window_s))
        return account

    def key(self, session: Session, now: float) -> tuple[float, ...]:
        """The place of a session among all that want its device."""
        if session.outside:
            return (OUTSIDE,)
        if session.starving:
            return (STARVING, session.waiting_since or 0.0)
        if session.claims:
            return (CLAIMING,)
        if session.overgrown or session.user.over:
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
            self.forget(session)
            return
        weight = 0.0 if session.turn is Turn.NONE else session.weight
        if weight != session.counted_weight and session.device.count(session, weight):
            self._share_credit(session.device, now)
        session.device.file(session, self.key(session, now) if session.turn is Turn.WAITING else ())

    def forget(self, session: Session) -> None:
        """Take a session out of its device's orders and of its user's account."""
        session.device.forget(session)
        if session.counted_weight:
            session.device.count(session, 0.0)

    def _share_credit(self, device: Device, now: float) -> None:
        """A second user wants the device: what sessions have left of their credit counts only as far as their user's does."""
        for account in device.accounts.values():
            self._refile_waiting(account, now)

    def _refile_waiting(self, account: Account, now: float) -> None:
        if account.sessions and account.credit.left(now, self.config.credit_s, self.config.credit_window_s) <= 0.0:
            for session in list(account.sessions):
                if session.turn is Turn.WAITING:
                    self.file(session, now)

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

    def _count(self, session: Session, amount: int) -> None:
        session.held_bytes += amount
        if not session.evictable:
            session.device.fixed_bytes += amount
        session.user.held_bytes += amount
        if session.user.limits.persistent_bytes is not None:
            self.unsettled[session.user] = None

    @staticmethod
    def put_in_host(session: Session, amount: int) -> None:
        """Its user's host memory has so many bytes of a session."""
        session.user.host_bytes += amount - session.host_bytes
        session.host_bytes = amount

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
        config = self.config
        session.credit.use(now, seconds, config.credit_window_s)
        session.device.policy.charge(session, seconds)
        account = session.device.accounts[session.user]
        had = account.credit.used_s < config.credit_s
        account.credit.use(now, seconds, config.credit_window_s)
        if had and account.credit.used_s >= config.credit_s and session.device.active_users > 1:
            self._refile_waiting(account, now)

    def interactive(self, session: Session, now: float) -> bool:
        """Whether a session has short-cell credit left."""
        return session.credit_left(now, self.config.credit_s, self.config.credit_window_s) > 0.0

    def can_go(self, session: Session, now: float) -> bool:
        """Whether a session's bytes can be moved out at all."""
        if session.residency is not Residency.RESIDENT or session.refused_until > now:
            return False
        return session.evictable and session.held_bytes > 0 and self.host_room(session) >= 0

    @staticmethod
    def host_room(session: Session, planned: int = 0) -> int:
        """Host memory that its user would have left if it went out, after `planned` bytes of others of theirs."""
        most = session.user.limits.host_bytes
        if most is None:
            return 0
        return most - session.user.host_bytes - planned - session.held_bytes - session.stopped_bytes
