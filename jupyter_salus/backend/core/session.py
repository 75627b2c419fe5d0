"""A session as the scheduler knows it: its turn, its bytes, and what was learned of it while it ran.

Plain data with the few rules that concern one session alone: its legal transitions, and the learning of E. Everything
that concerns several sessions is elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import UnknownDevice
from .credit import Credit
from .events import Profile
from .transitions import HOLDING, Residency, Turn, next_residency, next_turn

if TYPE_CHECKING:
    from .device import Device
    from .lane import Lane
    from .user import User

#: Priorities, the most urgent first; the number is the class that `priority` sorts by.
CLASSES = {"high": 0, "normal": 1, "low": 2}

NO_PROFILE = Profile()

_OUT = (Residency.EVICTING, Residency.EVICTED, Residency.RESTORING)


@dataclass(slots=True, eq=False)
class Growth:
    """A request for memory that waits."""

    request: int
    extra_bytes: int
    since: float
    #: Even alone the session couldn't have it beside what processes outside hold now.
    outside: bool = False


@dataclass(slots=True, eq=False)
class Session:
    """One kernel. Sessions are compared by identity; `number` grows with each opening and orders equals."""

    id: str
    number: int
    user: User
    device: Device
    priority: str
    evictable: bool
    opened_at: float
    credit: Credit
    profile: Profile = NO_PROFILE
    pinned: bool = False
    #: What a sticky device error said; such a session gets no turns.
    broken: str | None = None

    #: All parts of a session on several devices, this one among them, in device order; empty: it is on one.
    gang: tuple[Session, ...] = ()
    #: The gang claims its devices; this part's place is free.
    claims: bool = False
    placed: bool = False
    #: Once out whole it may return to another device of the kind.
    roams: bool = False

    turn: Turn = Turn.NONE
    residency: Residency = Residency.ABSENT
    epoch: int = 0
    ticket: int = 0
    silent: bool = False
    background: bool = False
    #: Somebody asked it to pass its turn on: it comes after the others once.
    yielded: bool = False
    starving: bool = False
    #: The turn that it has was given by the starvation bound: it lasts one quantum whatever the policy.
    starved_turn: bool = False
    waiting_since: float | None = None
    #: When it first wanted the device since it was last idle.
    arrived_at: float = 0.0
    granted_at: float = 0.0
    charged_at: float = 0.0
    quantum_end: float = 0.0
    #: The deadline that is set for looking at its place.
    watched_at: float = 0.0
    #: When its turn was last asked back.
    asked_at: float = 0.0
    #: When its last turn ended.
    ran_at: float | None = None
    stops: int = 0
    #: The time from the grant to its work was learned for this turn.
    handed_over: bool = False
    #: Its turn is one that nobody here would have given: it had it before the backend came back, or the device changed.
    resumed: bool = False
    #: Somebody asked for its eviction while it held a turn.
    evict_asked: bool = False

    #: P as known, whether or not it is on the device now.
    persistent_bytes: int = 0
    #: E as learned: what its lane must offer.
    ephemeral_bytes: int = 0
    #: What the ledger has of it outside lanes.
    held_bytes: int = 0
    #: E that it holds outside any lane, stopped in mid-iteration.
    stopped_bytes: int = 0
    #: Bytes that went to host memory with it.
    out_bytes: int = 0
    #: What its user's host memory has of it, moves that are under way included.
    host_bytes: int = 0
    #: Ephemeral bytes granted since its last boundary.
    mapped_bytes: int = 0
    lane: Lane | None = None
    #: What it needs of its lane, as the lane has it.
    lane_bytes: int = 0
    #: It grew past what the device has; others go first.
    overgrown: bool = False
    growth: Growth | None = None
    move: int = 0
    #: Its peer is gone and its bytes are expected back soon.
    going: bool = False
    move_started_at: float = 0.0
    #: Until when it may not go out for a session of its class.
    stays_until: float = 0.0
    #: A move out that was refused isn't asked for again before.
    refused_until: float = 0.0
    #: A return that failed is tried again then.
    retry_at: float = 0.0

    #: Seconds of an iteration alone and beside others; None: not seen yet.
    alone_s: float | None = None
    beside_s: float | None = None
    #: The first was measured, not reckoned from a neighbour's slow-down; how many ran when the second was.
    alone_seen: bool = False
    beside_count: int = 0
    beside_at: float = 0.0
    #: Share of the device that it uses alone; None: not known.
    share: float | None = None
    #: It was measured while the session ran alone, so what happens beside others says nothing new about it.
    share_alone: bool = False
    #: It was learned from a slow-down beside others.
    share_felt: bool = False
    remaining: int | None = None
    host_bound: bool | None = None
    #: Wall seconds in turns, and what they were worth alone.
    used_s: float = 0.0
    work_s: float = 0.0
    #: Virtual time of `fair`.
    virtual_s: float = 0.0
    #: Its weight as its priority says, and what of it its user's account on the device counts: 0 while it wants nothing.
    weight: float = 1.0
    counted_weight: float = 0.0
    #: Learned E: the highest of this window and of the one before.
    window_start: float = 0.0
    window_peak: int = 0
    window_before: int = 0

    iterations: int = 0
    turns: int = 0
    evictions: int = 0
    waited_s: float = 0.0
    peak_persistent_bytes: int = 0
    peak_ephemeral_bytes: int = 0

    #: The reason last told by `ExplainWait`.
    told: str = field(default="")

    def __post_init__(self) -> None:
        self.adopt(self.profile)

    def adopt(self, profile: Profile) -> None:
        """Take what an earlier run taught as the first guess."""
        self.persistent_bytes = profile.persistent_bytes or 0
        self.ephemeral_bytes = profile.ephemeral_bytes or 0
        self.window_before = self.ephemeral_bytes
        self.alone_s = profile.iteration_s
        self.alone_seen = profile.iteration_s is not None
        self.share = profile.device_share

    @property
    def holds(self) -> bool:
        """Whether it has a lane to itself now."""
        return self.turn in HOLDING

    @property
    def parts(self) -> tuple[Session, ...]:
        """The session on each of its devices."""
        return self.gang or (self,)

    def part(self, device: str) -> Session:
        """The session on the device of this id, "" for the first one. Raises `UnknownDevice`."""
        for one in self.parts:
            if one.device.id == device or not device:
                return one
        known = ", ".join(one.device.id for one in self.parts)
        raise UnknownDevice(f"cannot find device {device!r} of session {self.id}: it is on {known}", {"device": device})

    def in_turn(self, epoch: int) -> bool:
        """Whether the turn of this epoch is its, though the books may have taken it back."""
        return self.epoch == epoch and (self.turn in HOLDING or self.turn is Turn.LOST)

    @property
    def outside(self) -> bool:
        """Whether it waits for memory that processes outside have, and for nobody here."""
        return self.growth is not None and self.growth.outside

    @property
    def foretold(self) -> bool:
        """Whether its remaining time is known: the iterations to come, and how long one takes."""
        return self.remaining is not None and self.alone_s is not None

    @property
    def rank(self) -> int:
        """The class of its priority, 0 the most urgent."""
        return CLASSES[self.priority]

    @property
    def entry_bytes(self) -> int:
        """What the device must have free outside lanes before this session can enter."""
        if self.residency is Residency.EVICTED:
            return self.out_bytes
        if self.residency is Residency.ABSENT:
            return max(self.persistent_bytes - self.held_bytes, 0)
        return 0

    @property
    def need_bytes(self) -> int:
        """What its lane must offer: its E, but never more than the device has beside its P."""
        most = self.device.ledger.limit - max(self.persistent_bytes, self.held_bytes)
        return max(min(self.ephemeral_bytes, most), self.stopped_bytes, self.mapped_bytes, 0)

    @property
    def carried_bytes(self) -> int:
        """E of an iteration that it was stopped in: the part of its need that is counted outside lanes already."""
        return self.mapped_bytes if self.residency in _OUT else self.stopped_bytes

    def to_turn(self, new: Turn) -> None:
        """Change the turn; raises `IllegalTransition` and changes nothing."""
        self.turn = next_turn(self.id, self.turn, new)

    def to_residency(self, new: Residency) -> None:
        """Change the residency; raises `IllegalTransition` and changes nothing."""
        self.residency = next_residency(self.id, self.residency, new)

    def credit_left(self, now: float, credit_s: float, window_s: float) -> float:
        """Seconds of short-cell credit that it has; above 0 it is interactive. Among several users it has none once its
        user's is spent."""
        device = self.device
        if device.active_users > 1 and device.accounts[self.user].credit.left(now, credit_s, window_s) <= 0.0:
            return 0.0
        return self.credit.left(now, credit_s, window_s)

    def learn_ephemeral(self, amount: int, now: float, window_s: float) -> None:
        """A boundary needed `amount`: E rises at once and falls when two windows in a row needed less."""
        if now >= self.window_start + window_s:
            self.window_before = self.window_peak if now < self.window_start + 2 * window_s else amount
            self.window_start, self.window_peak = now, 0
        self.window_peak = max(self.window_peak, amount)
        self.ephemeral_bytes = max(self.window_peak, self.window_before)
        self.peak_ephemeral_bytes = max(self.peak_ephemeral_bytes, amount)

    def unlearn_ephemeral(self, amount: int) -> None:
        """It needs no more than `amount`, as far as is known: whatever it asks for beyond that is learned anew."""
        self.window_peak = min(self.window_peak, amount)
        self.window_before = min(self.window_before, amount)
        self.ephemeral_bytes = max(self.window_peak, self.window_before)
