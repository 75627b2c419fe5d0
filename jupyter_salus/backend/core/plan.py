"""The plan: who should hold turns now, and what is done to get there.

After every event that changes a device, `advance` goes once through the sessions that have or want a turn, in the
policy's order, and chooses those that should run: the first; then each that pays beside the chosen ones and fits. A
chosen session that lacks room gets victims (`moves`), one that is out is brought back, one that is ready gets its turn.
Holders that weren't chosen are revoked; being revoked they have no claim, but their memory counts until they let go.
Nothing else decides about turns, so whatever happened before, the next call mends it.

A holder inside its quantum comes before all but the starving, unless the policy preempts. While the moves for a chosen
session are under way and nobody runs, the first resident session runs that fits beside it, or, once the moves are late,
any that fits: the device doesn't idle while a resident session has work.

A first session that doesn't fit beside holders inside their quantum keeps their room: they end one by one, and nobody
takes it in between (except under `pack`, which would rather have the lanes full).

So that a decision doesn't look at every holder, those inside their quantum are summed up (`Device.staying`), and held
one by one against what pays and fits only when something changed that could turn against them (`Device.stale`).

What waits beyond that is admitted, in order, as long as the chosen ones, and the largest E that is there, still fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import drain, gang, growth, limits, moves, roaming, turns
from .device import Device
from .find import fits, join, room_if_lanes_shrink, shed
from .moves import LOOK
from .transitions import Residency, Turn

if TYPE_CHECKING:
    from .order import Key
    from .session import Session
    from .state import State

#: Holders inside their quantum come before the policy's order and after the starving.
IN_QUANTUM = (0.5,)


class Plan:
    """The sessions that should run, in order, and the sums by which the next candidate is judged."""

    __slots__ = (
        "_most_share",
        "bound",
        "count",
        "device",
        "judged",
        "longest_s",
        "newcomers",
        "room",
        "seen",
        "session_set",
        "victims",
        "wanted",
    )

    def __init__(self, device: Device, judged: list[Session]) -> None:
        ledger = device.ledger
        self.device = device
        #: Holders that were held against those that wait.
        self.judged = judged
        #: The largest share that pays beside the chosen ones, once it was asked for.
        self._most_share: float | None = None
        #: What is there once all who aren't chosen let go and all moves are over.
        self.room = ledger.limit - ledger.held - ledger.stopped + device.going_bytes
        self.count = 0
        self.wanted = 0.0
        self.longest_s = 0.0
        self.seen = 0
        #: Holders that were chosen, and others that were.
        self.session_set: dict[Session, None] = {}
        self.newcomers: list[Session] = []
        #: Holders that go out for somebody once their turn is over.
        self.victims: dict[Session, None] = {}
        #: Bytes of lanes whose holders are inside their quantum.
        self.bound = 0

    def stay(self) -> None:
        """Choose all holders that nobody asked for their turn."""
        staying = self.device.staying
        self.session_set.update(dict.fromkeys(staying.sessions))
        self.count += len(staying)
        self.wanted += staying.share
        self.seen += staying.seen
        self.longest_s = staying.longest_s
        self.room -= staying.lane_bytes
        self.bound += staying.lane_bytes

    def choose(self, session: Session, cost: int) -> None:
        """Choose one more."""
        self.room -= cost
        self.count += 1
        self.wanted += session.device.pace.share(session)
        self.seen += session.alone_seen
        self.session_set[session] = None
        if session.alone_s is not None and session.alone_s > self.longest_s:
            self.longest_s = session.alone_s
        self._most_share = None
        if not session.holds:
            self.newcomers.append(session)

    def pays(self, state: State, session: Session, share: float, now: float) -> bool:
        """Whether running the session beside the chosen ones raises the total speed enough."""
        if state.config.lanes == "off":
            return True
        if session.holds and not self.newcomers:
            return share <= self._most(state.config.pays_hysteresis, now)
        if self._most_share is None:
            self._most_share = self._most(0.0, now)
        return share <= self._most_share

    def _most(self, less: float, now: float) -> float:
        pace = self.device.pace
        if not self.seen and not pace.fresh(self.longest_s, now):
            return -1.0
        return pace.most_share(self.count, self.wanted, 1.0 + self.device.policy.pays - less, now)


def advance(state: State, device: Device, now: float) -> None:
    """Bring the device to where it should be."""
    if device.blocked:
        growth.serve(state, device, now)
        growth.step_aside(state, device, now)
    growth.come_in(state, device, now)
    if device.overgrown:
        _forgive(state, device, now)
    if device.draining is not None:
        drain.advance(state, device, now)
    elif len(device.waiting) or device.holders:
        _act(state, device, _choose(state, device, now), now)
        if device.blocked and growth.resolve_deadlock(state, device, now):
            device.stale = True
            _act(state, device, _choose(state, device, now), now)
    if len(device.holders) != device.parallel:
        device.parallel, device.parallel_since = len(device.holders), now
    if device.kind and not device.holders and not len(device.waiting):
        roaming.call(state, device, now)


def _forgive(state: State, device: Device, now: float) -> None:
    """Once the device has room again, sessions that had grown past it are like the others."""
    if device.ledger.free >= 0:
        for session in device.overgrown:
            session.overgrown = False
            state.file(session, now)
        device.overgrown.clear()


def _judged(state: State, device: Device, now: float) -> list[tuple[Key, int, Session]]:
    """Holders that must be held against those that wait, in order; the others stay as they are."""
    policy = device.policy
    judged: list[tuple[Key, int, Session]] = []
    everybody = _must_judge_all(device)
    for holder in device.holders:
        if holder.turn is not Turn.RUNNING or (not everybody and now < holder.quantum_end):
            continue
        if holder.gang and any(part.turn is Turn.BLOCKED for part in holder.gang):
            continue  # it comes to no boundary before it has its memory on all devices
        state.charge(holder, now)
        bound = now < holder.quantum_end and (holder.starved_turn or not policy.preempts)
        judged.append((IN_QUANTUM if bound else state.key(holder, now), holder.number, holder))
    device.stale = False
    judged.sort()
    return judged


def _must_judge_all(device: Device) -> bool:
    """Whether holders inside their quantum may have to go, too."""
    if device.stale or device.blocked or device.ledger.free < 0:
        return True
    if not device.side_by_side and len(device.holders) > 1:
        # A session came back to a new backend with its turn when another one had been given it: one of them stays.
        return True
    first = device.waiting.entries[:1]
    return bool(first) and first[0][0][0] < IN_QUANTUM[0]


def _choose(state: State, device: Device, now: float) -> Plan:
    """The sessions that should run now, in order. Asks for the moves that make room for them."""
    config = state.config
    judged = _judged(state, device, now)
    for _, _, holder in judged:
        device.staying.discard(holder)
    plan = Plan(device, [holder for _, _, holder in judged])
    plan.stay()
    for _, _, holder in judged:
        device.staying.add(holder, device.pace.share(holder))
    for blocked in device.blocked:
        plan.choose(blocked, growth.wanted_bytes(blocked))
        plan.bound += blocked.lane_bytes
        if plan.room < 0:
            plan.room += _make_room(state, blocked, -plan.room, plan, now)
    limit = config.lanes_limit if device.side_by_side and config.lanes != "one" else 1
    # Moving a session changes the orders: look at the first ones as they are now.
    waiting = device.waiting.entries[: config.scan * 2 + limit - min(plan.count, limit)]
    pace = device.pace
    at_judged = at_waiting = misses = 0
    least_refused = float("inf")
    while plan.count < limit and misses <= config.scan:
        if at_judged < len(judged) and (at_waiting >= len(waiting) or judged[at_judged][:2] <= waiting[at_waiting][:2]):
            session = judged[at_judged][2]
            at_judged += 1
            if session in plan.victims:
                continue
        elif at_waiting < len(waiting):
            session = waiting[at_waiting][2]
            at_waiting += 1
            if session.residency is Residency.EVICTING or session.retry_at > now or session.outside:
                continue
            if session.gang and not gang.stands(state, session, now):
                continue
        else:
            break
        if plan.count:
            share = pace.share(session)
            if share >= least_refused or not plan.pays(state, session, share, now):
                least_refused = min(least_refused, share)
                misses += 1
                continue
        if not session.holds:
            ending = limits.make_way(state, session, now)
            if ending is not None:
                plan.victims.update(dict.fromkeys(one for one in ending if one not in plan.session_set))
                misses += 1
                continue
        cost = gang.cost(session)
        if cost > plan.room:
            if session.holds or cost > _attainable(device, session):
                misses += 1
                continue
            gained = _make_room(state, session, cost - plan.room, plan, now)
            if plan.room + gained < cost:
                keeps = _keeps_room(device, session, cost, plan, first=not (misses or plan.newcomers))
                if keeps and (session.claims or not gang.takes_turn(session)):
                    plan.room += gained
                    plan.choose(session, cost)
                else:
                    misses += 1
                continue
            plan.room += gained
        if gang.takes_turn(session) and not session.claims and not gang.claim(state, session, now):
            misses += 1
            continue
        plan.choose(session, cost)
        if session.holds and now < session.quantum_end:
            plan.bound += cost
    first = device.waiting.first()
    if first is not None and first.starving:
        state.look_again(device, now + config.retry_s, now)
    device.over_capacity = False
    if not plan.count and not device.moves:
        _regardless(device, plan)
    return plan


def _attainable(device: Device, session: Session) -> int:
    """The most that the session could have if everybody else who can be moved were out."""
    own = session.held_bytes if session.evictable and session.residency is not Residency.EVICTED else 0
    return device.ledger.limit - device.fixed_bytes - own


def _keeps_room(device: Device, session: Session, cost: int, plan: Plan, *, first: bool) -> bool:
    """Whether the room of a session that doesn't fit yet is kept from all that come after it.

    For the first starving one in any case; else for the first one, if only holders inside their quantum have it.
    """
    if session.starving:
        return plan.room >= 0
    return first and device.policy.keeps_room and cost <= plan.room + plan.bound


def _regardless(device: Device, plan: Plan) -> None:
    """On a device that can't move anything: if nobody can run as things are, who has the turn or is first goes on."""
    if plan.judged:
        plan.choose(plan.judged[0], 0)
        return
    first = device.waiting.first()
    if first is not None and not first.gang and not first.outside and not device.holders:
        device.over_capacity = True
        plan.choose(first, 0)


def _make_room(state: State, session: Session, shortage: int, plan: Plan, now: float) -> int:
    """Move victims out for a session that is to run; the bytes that will come of it, 0 if not enough could."""
    victims = moves.find_victims(state, session, shortage, plan.session_set, now)
    if victims is None:
        return 0
    gained = 0
    for victim in victims:
        gained += victim.held_bytes + victim.stopped_bytes
        if victim.holds:
            plan.victims[victim] = None
        else:
            moves.evict(state, victim, f"room for {session.id}", now, charged=victim.turn is Turn.WAITING)
    return gained


def _act(state: State, device: Device, plan: Plan, now: float) -> None:
    """Returns, revocations, turns, admissions."""
    _revoke_others(state, device, plan, now)
    #: What those before need that couldn't be placed yet: what is free is theirs.
    owed = 0
    for session in plan.newcomers:
        room = room_if_lanes_shrink(device) - owed
        if session.gang:
            session.placed = session.claims and len(device.holders) < plan.count and gang.cost(session) <= room
        if session.residency is Residency.EVICTED:
            if session.entry_bytes <= room and limits.may_enter(session):
                shed(device, session.entry_bytes)
                moves.restore(state, session, now)
        elif (
            session.residency is not Residency.RESTORING
            and len(device.holders) < plan.count
            and (device.over_capacity or gang.cost(session) <= room)
            and limits.may_enter(session)
            and (not session.gang or _complete(session))
        ):
            turns.grant(state, session, now)
            growth.take_up(state, session, now)
            continue
        owed += gang.cost(session)
    if not device.holders and len(device.ready) and not any(session.placed for session in plan.newcomers):
        _fill_in(state, device, plan.newcomers, now)
    if device.blocked:
        growth.serve(state, device, now)
    if len(device.absent):
        _admit(state, device, plan, now)
    for holder in plan.judged:
        if now >= holder.quantum_end and holder.turn is Turn.RUNNING:
            turns.begin_quantum(state, holder, now)


def _complete(session: Session) -> bool:
    """Whether a gang's place is free on all its devices."""
    return all(part.placed and gang.cost(part) <= room_if_lanes_shrink(part.device) for part in session.gang)


def _revoke_others(state: State, device: Device, plan: Plan, now: float) -> None:
    """Ask holders that weren't chosen for their turns, unless all those that come for them are still on their way."""
    going = [holder for holder in plan.judged if holder not in plan.session_set]
    if not going:
        return
    room = room_if_lanes_shrink(device) + device.going_bytes
    for session in plan.newcomers:
        if session.residency is Residency.RESTORING:
            continue
        if session.residency is not Residency.EVICTED or session.entry_bytes > room:
            break
    else:
        if plan.newcomers:
            return
    for holder in going:
        turns.revoke(state, holder, now)


def _fill_in(state: State, device: Device, newcomers: list[Session], now: float) -> None:
    """Nobody runs: let the first resident session run that fits."""
    late = not device.moving or now >= device.moves_due
    reserved = 0
    if not late:
        reserved = sum(gang.cost(session) for session in newcomers) - device.going_bytes
        state.look_again(device, device.moves_due, now)
    room = room_if_lanes_shrink(device)
    for entry in device.ready.entries[:LOOK]:
        session = entry[2]
        if session.gang or session.outside:
            continue
        if session.need_bytes - session.carried_bytes + max(reserved, 0) <= room:
            turns.grant(state, session, now)
            growth.take_up(state, session, now)
            return
    if not late:
        return
    # None of the first ones fits: if the one that needs least doesn't, none does.
    others = (session for session in device.ready if not (session.gang or session.outside))
    least = min(others, key=_needs, default=None)
    if least is not None and fits(device, least):
        turns.grant(state, least, now)
        growth.take_up(state, least, now)


def _needs(session: Session) -> tuple[int, int]:
    return (session.need_bytes - session.carried_bytes, session.number)


def _admit(state: State, device: Device, plan: Plan, now: float) -> None:
    """Let sessions in that were never here, while those that run and the largest E there still fit."""
    ledger = device.ledger
    chosen = ledger.limit - ledger.held - ledger.stopped + device.going_bytes - plan.room
    for entry in device.absent.entries[: state.config.scan]:
        session = entry[2]
        if session.starving:
            return
        if not limits.may_enter(session):
            continue
        largest = device.needs.last()
        need = max(chosen, session.need_bytes, largest.need_bytes if largest is not None else 0)
        most = min(ledger.limit - ledger.held - ledger.stopped - need, room_if_lanes_shrink(device))
        if session.entry_bytes > most:
            return
        turns.admit(state, session, now)
        if state.config.lanes != "off":
            join(device, session)
