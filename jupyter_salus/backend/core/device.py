"""A device as the scheduler knows it: its ledger, lanes, and its sessions in the orders in which they are looked for.

The orders are kept with every change of a session (`file`), so that no decision has to look at all sessions.
"""

from __future__ import annotations

from heapq import heappop, heappush

from .lane import Lane
from .ledger import Ledger
from .order import Order
from .pace import Pace
from .policies import Policy
from .session import Session
from .transitions import Residency, Turn
from .user import Account, User


class Staying:
    """Sums over the holders that go on as long as nothing changes, so that a plan needn't look at each of them."""

    __slots__ = ("lane_bytes", "longest_s", "seen", "sessions", "share")

    def __init__(self) -> None:
        #: Each with what it counts for.
        self.sessions: dict[Session, tuple[float, int, bool]] = {}
        self.share = 0.0
        self.lane_bytes = 0
        #: How many of them were seen alone; no iteration of theirs takes longer alone than the second says.
        self.seen = 0
        self.longest_s = 0.0

    def __len__(self) -> int:
        return len(self.sessions)

    def add(self, session: Session, share: float) -> None:
        """Count a holder, with its share and lane as they are now."""
        counted = (share, session.lane_bytes, session.alone_seen)
        self.sessions[session] = counted
        self.share += share
        self.lane_bytes += session.lane_bytes
        self.seen += session.alone_seen
        if session.alone_s is not None and session.alone_s > self.longest_s:
            self.longest_s = session.alone_s

    def discard(self, session: Session) -> None:
        """Count it no more, if it was."""
        counted = self.sessions.pop(session, None)
        if counted is not None:
            self.share = self.share - counted[0] if self.sessions else 0.0
            self.longest_s = self.longest_s if self.sessions else 0.0
            self.lane_bytes -= counted[1]
            self.seen -= counted[2]


class Device:
    """One device."""

    __slots__ = (
        "absent",
        "accounts",
        "active_users",
        "active_weight",
        "blocked",
        "claim",
        "draining",
        "fixed_bytes",
        "free_numbers",
        "going_bytes",
        "handover_s",
        "holders",
        "id",
        "idle",
        "kind",
        "lanes",
        "ledger",
        "move_cost",
        "move_credit_at",
        "move_credit_s",
        "moves",
        "moves_due",
        "moving",
        "needs",
        "over_capacity",
        "overgrown",
        "pace",
        "parallel",
        "parallel_since",
        "policy",
        "ready",
        "retry_at",
        "side_by_side",
        "stale",
        "staying",
        "unused",
        "users_weight",
        "virtual_s",
        "waiting",
    )

    def __init__(self, id: str, ledger: Ledger, pace: Pace, policy: Policy, *, moves: bool, side_by_side: bool) -> None:
        self.id = id
        #: Devices of one kind are alike; "" is like no other.
        self.kind = ""
        #: The home part of the gang that claims it.
        self.claim: Session | None = None
        self.ledger = ledger
        self.pace = pace
        self.policy = policy
        self.moves = moves
        self.side_by_side = side_by_side
        self.lanes: dict[str, Lane] = {}
        #: Those of them in which nobody runs.
        self.unused: dict[str, Lane] = {}
        #: Numbers of lanes that were closed: with those of the open ones they are 1, 2, … without a gap.
        self.free_numbers: list[int] = []
        #: Sessions that hold a turn, oldest turn first.
        self.holders: list[Session] = []
        #: How many hold one, and since when so many do: what is measured in between is of one kind.
        self.parallel = 0
        self.parallel_since = 0.0
        #: All sessions that want a turn, in the policy's order; those of them that are resident; those never here.
        self.waiting = Order()
        self.ready = Order()
        self.absent = Order()
        #: Residents that could go out and want nothing, by the cost of moving them.
        self.idle = Order()
        #: Residents that want or hold a turn, by E.
        self.needs = Order()
        #: Bytes of sessions that can't be moved, and what those that are out left behind.
        self.fixed_bytes = 0
        #: Holders that wait for room, those that asked first first.
        self.blocked: list[Session] = []
        #: Bytes of moves out and of peers that are gone: they come back by themselves.
        self.going_bytes = 0
        #: Sessions whose move is under way.
        self.moving: dict[str, Session] = {}
        #: When the moves under way should all be over.
        self.moves_due = 0.0
        #: Learned seconds of a move: fixed, and for each byte.
        self.move_cost = (0.0, 0.0)
        #: Seconds that moves for sessions of the same class may still take.
        self.move_credit_s = 0.0
        self.move_credit_at = 0.0
        #: Virtual time of `fair`: newcomers start here.
        self.virtual_s = 0.0
        #: Users with sessions here, how many of them want it, and the sums of their weights and of their sessions'.
        self.accounts: dict[User, Account] = {}
        self.active_users = 0
        self.users_weight = 0.0
        self.active_weight = 0.0
        #: Learned seconds from a grant to the work's begin.
        self.handover_s = 0.0
        #: The next look that is already set.
        self.retry_at = 0.0
        #: Holders that nobody asked for their turn, together.
        self.staying = Staying()
        #: Something changed that holders inside their quantum must be held against.
        self.stale = True
        #: The session that is let in now is so though the device has too little, since nobody else can run.
        self.over_capacity = False
        #: Why it is drained, maybe ""; None: it isn't.
        self.draining: str | None = None
        #: Sessions that grew past what the device has.
        self.overgrown: list[Session] = []

    def new_lane(self) -> Lane:
        """A new, empty lane, with the smallest number that no other one has: people know lanes by it."""
        number = heappop(self.free_numbers) if self.free_numbers else len(self.lanes) + 1
        lane = Lane(number, self.id, self.ledger, self.unused)
        self.lanes[lane.id] = lane
        return lane

    def leave_lane(self, session: Session) -> None:
        """Take a session out of its lane, if it is in one; an empty lane is closed."""
        lane = session.lane
        if lane is not None:
            lane.remove(session)
            if not len(lane):
                lane.close()
                heappush(self.free_numbers, lane.number)
                del self.lanes[lane.id]

    def file(self, session: Session, key: tuple[float, ...]) -> None:
        """Put a session into the orders where it belongs now; `key` is its place in the policy's order."""
        resident = session.residency is Residency.RESIDENT
        wants = session.turn is Turn.WAITING
        if wants:
            self.waiting.put(session, key)
            if resident:
                self.ready.put(session, key)
            else:
                self.ready.discard(session)
            if session.residency is Residency.ABSENT:
                self.absent.put(session, key)
            else:
                self.absent.discard(session)
        else:
            self.waiting.discard(session)
            self.ready.discard(session)
            self.absent.discard(session)
        if resident and session.turn is Turn.NONE:
            if session.evictable and session.held_bytes > 0:
                self.idle.put(session, (float(session.pinned), float(session.held_bytes)))
            else:
                self.idle.discard(session)
            self.needs.discard(session)
        else:
            self.idle.discard(session)
            if resident:
                self.needs.put(session, (float(session.ephemeral_bytes),))
            else:
                self.needs.discard(session)

    def count(self, session: Session, weight: float) -> bool:
        """Have a session count in its user's account with this weight, 0 for one that wants nothing. True: a second user
        wants the device from now on."""
        account = self.accounts[session.user]
        before = account.weight
        account.weight += weight - session.counted_weight
        self.active_weight += weight - session.counted_weight
        session.counted_weight = weight
        if weight:
            account.sessions[session] = None
        else:
            account.sessions.pop(session, None)
        if not account.sessions:
            # Sums of fractions don't come back to 0 by themselves.
            account.weight = 0.0
        if bool(before) == bool(account.weight):
            return False
        came = 1 if account.weight else -1
        self.active_users += came
        self.users_weight += came * account.user.limits.weight
        if not self.active_users:
            self.users_weight = self.active_weight = 0.0
        return came > 0 and self.active_users == 2

    def block(self, session: Session) -> None:
        """A holder waits for room from now on."""
        self.staying.discard(session)
        self.blocked.append(session)

    def unblock(self, session: Session) -> None:
        """A holder waits for room no more, if it did."""
        if session in self.blocked:
            self.blocked.remove(session)

    def recount(self, session: Session) -> None:
        """A holder's share or need changed."""
        if session in self.staying.sessions:
            self.staying.discard(session)
            self.staying.add(session, self.pace.share(session))

    def forget(self, session: Session) -> None:
        """Take a session out of all orders."""
        for order in (self.waiting, self.ready, self.absent, self.idle, self.needs):
            order.discard(session)

    def move_s(self, amount: int) -> float:
        """Seconds that a move of so many bytes is expected to take."""
        return self.move_cost[0] + amount * self.move_cost[1]
