"""The plan: who should hold turns now, and what is done to get there.

After every event that changes a device, `advance` goes once through the sessions that have or want a turn, in the
policy's order, and chooses those that should run: the first; then each that pays beside the chosen ones and fits. A
chosen session that lacks room gets victims (`moves`), one that is out is brought back, one that is ready gets its turn.
Holders that weren't chosen are revoked; being revoked they have no claim, but their memory counts until they let go.
Nothing else decides about turns, so whatever happened before, the next call mends it.

A holder inside its quantum comes before all but the starving, unless the policy preempts. While the moves for a chosen
session are under way and nobody runs, the first resident session runs that fits beside it, or, once the moves are late,
any that fits: the device doesn't idle while a resident session has work.

What waits beyond that is admitted, in order, as long as the chosen ones, and the largest E that is there, still fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import growth, moves, turns
from .find import fits, join, room_if_lanes_shrink, shed
from .moves import LOOK
from .transitions import Residency, Turn

if TYPE_CHECKING:
    from .device import Device
    from .order import Key
    from .session import Session
    from .state import State

#: Holders inside their quantum come before the policy's order and after the starving.
IN_QUANTUM = (0.5,)


def advance(state: State, device: Device, now: float) -> None:
    """Bring the device to where it should be."""
    growth.serve(state, device, now)
    _forgive(state, device, now)
    if len(device.waiting) or device.holders:
        _act(state, device, _choose(state, device, now), now)
        if growth.resolve_deadlock(state, device, now):
            _act(state, device, _choose(state, device, now), now)
    if len(device.holders) != device.parallel:
        device.parallel, device.parallel_since = len(device.holders), now


def _forgive(state: State, device: Device, now: float) -> None:
    """Once the device has room again, sessions that had grown past it are like the others."""
    if device.overgrown and device.ledger.free >= 0:
        for session in device.overgrown:
            session.overgrown = False
            state.file(session, now)
        device.overgrown.clear()
        device.over_capacity = False


def _holders(state: State, device: Device, now: float) -> list[tuple[Key, int, Session]]:
    """Holders that could go on, in order."""
    policy = device.policy
    active: list[tuple[Key, int, Session]] = []
    for holder in device.holders:
        if holder.turn is Turn.RUNNING:
            state.charge(holder, now)
            bound = now < holder.quantum_end and (holder.starved_turn or not policy.preempts)
            active.append((IN_QUANTUM if bound else state.key(holder, now), holder.number, holder))
    active.sort()
    return active


def _choose(state: State, device: Device, now: float) -> list[Session]:
    """The sessions that should run now, in order. Asks for the moves that make room for them."""
    config = state.config
    ledger = device.ledger
    chosen = [holder for holder in device.holders if holder.turn is Turn.BLOCKED]
    #: What is there once all who aren't chosen let go and all moves are over.
    room = ledger.limit - ledger.held - ledger.stopped + device.going_bytes
    for blocked in chosen:
        room -= growth.wanted_bytes(blocked)
        if room < 0:
            room += _make_room(state, blocked, -room, chosen, now)
    limit = config.lanes_limit if device.side_by_side and config.lanes != "one" else 1
    active = _holders(state, device, now)
    entries = device.waiting.entries
    # Moving a session changes the orders: look at the first ones as they are now.
    entries = entries[: config.scan * 2 + limit]
    at_active = at_waiting = misses = 0
    least_refused = float("inf")
    while len(chosen) < limit and misses <= config.scan:
        if at_active < len(active) and (at_waiting >= len(entries) or active[at_active][0] <= entries[at_waiting][0]):
            session = active[at_active][2]
            at_active += 1
        elif at_waiting < len(entries):
            session = entries[at_waiting][2]
            at_waiting += 1
            if session.residency is Residency.EVICTING or session.retry_at > now:
                continue
        else:
            break
        if chosen:
            share = device.pace.share(session)
            if share >= least_refused or not _pays(state, chosen, session, now):
                least_refused = min(least_refused, share)
                misses += 1
                continue
        left = room - _cost(session)
        if left < 0:
            if session.holds:
                misses += 1
                continue
            gained = _make_room(state, session, -left, chosen, now)
            if left + gained < 0:
                misses += 1
                continue
            left += gained
        room = left
        chosen.append(session)
    if not chosen and not device.holders and not device.moves:
        chosen = _regardless(device)
    return chosen


def _regardless(device: Device) -> list[Session]:
    """On a device that can't move anything: if nobody can run as things are, the first one goes on all the same."""
    first = device.waiting.first()
    if first is None:
        return []
    device.over_capacity = True
    return [first]


def _cost(session: Session) -> int:
    """What the session needs beyond what the ledger has of it outside lanes."""
    if session.holds:
        return session.lane_bytes
    return session.need_bytes - session.carried_bytes + session.entry_bytes


def _pays(state: State, chosen: list[Session], session: Session, now: float) -> bool:
    """Whether running the session beside the chosen ones raises the total speed enough."""
    if state.config.lanes == "off":
        return True
    device = session.device
    pace = device.pace
    if not pace.known(chosen, now):
        return False
    shares = [pace.share(one) for one in chosen]
    alone = pace.total(shares, now)
    shares.append(pace.share(session))
    needed = 1.0 + device.policy.pays
    if session.holds and all(one.holds for one in chosen):
        needed -= state.config.pays_hysteresis
    return pace.total(shares, now) >= alone * needed


def _make_room(state: State, session: Session, shortage: int, chosen: list[Session], now: float) -> int:
    """Move victims out for a session that is to run; the bytes that will come of it, 0 if not enough could."""
    victims = moves.find_victims(state, session, shortage, chosen, now)
    if victims is None:
        return 0
    gained = 0
    for victim in victims:
        gained += victim.held_bytes + victim.stopped_bytes
        if not victim.holds:
            moves.evict(state, victim, f"room for {session.id}", now, charged=victim.turn is Turn.WAITING)
    return gained


def _act(state: State, device: Device, chosen: list[Session], now: float) -> None:
    """Returns, revocations, turns, admissions."""
    newcomers = [session for session in chosen if not session.holds]
    ready = []
    cramped = False
    for session in newcomers:
        if session.residency is Residency.EVICTED:
            entry = session.entry_bytes
            if shed(device, entry):
                moves.restore(state, session, now)
            elif entry > room_if_lanes_shrink(device) + device.going_bytes:
                cramped = True
        elif session.residency is not Residency.RESTORING:
            ready.append(session)
    if len(chosen) - len(newcomers) < len(device.holders) and (ready or cramped or not newcomers):
        for holder in device.holders:
            if holder.turn is Turn.RUNNING and holder not in chosen:
                turns.revoke(state, holder, now)
    for session in ready:
        if len(device.holders) >= len(chosen):
            break
        if device.over_capacity or fits(device, session):
            turns.grant(state, session, now)
    if not device.holders and len(device.ready):
        _fill_in(state, device, newcomers, now)
    growth.serve(state, device, now)
    _admit(state, device, chosen, now)
    for holder in device.holders:
        if holder.turn is Turn.RUNNING and now >= holder.quantum_end:
            turns.begin_quantum(state, holder, now)


def _fill_in(state: State, device: Device, newcomers: list[Session], now: float) -> None:
    """Nobody runs: let the first resident session run that fits."""
    late = not device.moving or now >= device.moves_due
    reserved = 0
    if not late:
        reserved = sum(_cost(session) for session in newcomers) - device.going_bytes
        state.look_again(device, device.moves_due, now)
    for entry in device.ready.entries[:LOOK]:
        session = entry[2]
        if session.need_bytes - session.carried_bytes + max(reserved, 0) <= room_if_lanes_shrink(device):
            turns.grant(state, session, now)
            return
    if late:
        for session in device.needs:
            if session in device.ready:
                if fits(device, session):
                    turns.grant(state, session, now)
                return


def _admit(state: State, device: Device, chosen: list[Session], now: float) -> None:
    """Let sessions in that were never here, while those that run and the largest E there still fit."""
    if not len(device.absent):
        return
    ledger = device.ledger
    lanes = sum(_cost(session) - session.entry_bytes for session in chosen)
    for entry in device.absent.entries[: state.config.scan]:
        session = entry[2]
        if session.starving:
            return
        largest = device.needs.last()
        need = max(lanes, session.need_bytes, largest.need_bytes if largest is not None else 0)
        if ledger.held + ledger.stopped + session.entry_bytes + need > ledger.limit:
            return
        if session.entry_bytes > room_if_lanes_shrink(device):
            return
        turns.admit(state, session, now)
        if state.config.lanes != "off":
            join(device, session)
