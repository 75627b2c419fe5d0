"""What guests, guards and devices report: turns wanted and given back, iterations, memory, moves, devices.

What names an old epoch, ticket, move or request is late: it is ignored and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from ...errors import NotPossible
from . import events, growth, memory, moves, plan, policies, roaming, turns
from .decisions import ExplainWait
from .device import Device
from .find import join, shed
from .ledger import Ledger
from .pace import Pace
from .transitions import Residency, Turn

if TYPE_CHECKING:
    from .session import Session
    from .state import State


def turn_requested(state: State, event: events.TurnRequested, now: float) -> Device | None:
    """A session wants its device. Raises `NotPossible` for one that is broken or has a turn."""
    session = state.session(event.session)
    if session.broken is not None:
        raise NotPossible(f"cannot give session {session.id} a turn: {session.broken}")
    if session.turn is Turn.WAITING:
        # The same wait under a new number: a second thread, or a reconnection.
        for part in session.parts:
            part.ticket = event.ticket
        return None
    if session.turn is not Turn.NONE:
        raise NotPossible(f"cannot let session {session.id} wait for a turn: it has one ({session.turn.value})")
    idle: list[Device] = []
    for part in session.parts:
        part.silent, part.background = event.silent, event.background
        part.arrived_at = now
        part.device.policy.arrived(part)
        part.device.stale = part.device.stale or part.device.policy.preempts
        if not len(part.device.waiting):
            idle.append(part.device)
    turns.begin_wait(state, session, event.ticket, now)
    for part in session.parts:
        interactive = state.interactive(part, now)
        for holder in part.device.holders:
            if interactive:
                turns.shorten_quantum(state, holder, now)
            elif part.device in idle:
                turns.watch_quantum(state, holder)
    for part in session.parts:
        if part.residency is Residency.RESIDENT and state.config.lanes != "off":
            join(part.device, part)
    roaming.seek(state, session, now)
    plan.advance(state, session.device, now)
    _explain(state, session)
    return None


def _explain(state: State, session: Session) -> None:
    if session.turn in (Turn.WAITING, Turn.BLOCKED):
        state.outbox.append(ExplainWait(session.id, session.ticket))


def turn_withdrawn(state: State, event: events.TurnWithdrawn, now: float) -> Device | None:
    """A wait ended by itself."""
    session = state.session(event.session)
    if session.turn is not Turn.WAITING or session.ticket != event.ticket:
        return state.ignore(event)
    turns.withdraw(state, session, now)
    return session.device


def turn_released(state: State, event: events.TurnReleased, now: float) -> Device | None:
    """A turn was given back."""
    session = state.session(event.session)
    if not session.in_turn(event.epoch):
        return state.ignore(event)
    if event.count is not None:
        done = events.IterationsFinished(event.session, event.epoch, event.count, event.busy_s, event.remaining)
        iterations_finished(state, done, now)
    stopped = {session.device.id: event.stopped_bytes, **dict(event.stopped_elsewhere)}
    turns.release(state, session, event.ticket, stopped, now)
    for part in session.parts:
        if part.evict_asked and state.can_go(part, now):
            moves.evict(state, part, "asked for", now)
    return session.device


def iterations_finished(state: State, event: events.IterationsFinished, now: float) -> Device | None:
    """A boundary was passed in a turn."""
    session = state.session(event.session)
    if not session.in_turn(event.epoch):
        return state.ignore(event)
    for part in session.gang[1:]:
        if _iterated(state, part, event, now):
            state.look[part.device] = None
    return session.device if _iterated(state, session, event, now) else None


def _iterated(state: State, session: Session, event: events.IterationsFinished, now: float) -> bool:
    """On one device; whether it is to be looked at."""
    device = session.device
    if session.holds:
        state.charge(session, now)
    foretold = session.foretold
    session.iterations += event.count
    if event.remaining is not None:
        session.remaining = event.remaining
    if event.host_bound is not None:
        session.host_bound = event.host_bound
    if session.turn is Turn.RUNNING or session.turn is Turn.YIELDING:
        session.mapped_bytes = 0
    changed = _learn(session, event, now)
    if device.policy.preempts and session.foretold is not foretold:
        # Its place in the order is another one from now on, and somebody else may come first.
        changed = True
    if changed:
        device.recount(session)
        device.stale = True
    return changed or (now >= session.quantum_end and len(device.waiting) > 0)


def _learn(session: Session, event: events.IterationsFinished, now: float) -> bool:
    """Speed and shares, from iterations during which nothing changed beside them."""
    device = session.device
    if event.count <= 0 or event.busy_s <= 0.0 or not session.holds:
        return False
    began = now - event.busy_s
    if not session.handed_over:
        session.handed_over = True
        device.handover_s += 0.2 * (max(began - session.granted_at, 0.0) - device.handover_s)
    if device.parallel_since > began + 1e-6:
        return False
    others = [one for one in device.holders if one is not session]
    return device.pace.learn(session, others, event.busy_s / event.count, event.device_share, now)


def memory_measured(state: State, event: events.MemoryMeasured, now: float) -> Device | None:
    """P and E as the device shows them."""
    session = state.session(event.session).part(event.device)
    device = session.device
    free = device.ledger.free
    memory.measured(state, session, event.persistent_bytes, event.ephemeral_bytes, now)
    if device.ledger.free == free:
        return None
    device.stale = True
    return device


def growth_asked(state: State, event: events.GrowthAsked, now: float) -> Device:
    """A session in a turn wants more memory. Raises `NotPossible`."""
    session = state.session(event.session).part(event.device)
    growth.ask(state, session, event.request, event.extra_bytes, now)
    _explain(state, session)
    return session.device


def growth_withdrawn(state: State, event: events.GrowthWithdrawn, now: float) -> Device | None:
    """It waits for that no more."""
    session = state.session(event.session)
    if not growth.withdraw(state, session, event.request, now):
        return state.ignore(event)
    return session.device


MoveEnded = events.SessionEvicted | events.EvictionFailed | events.SessionRestored | events.RestoreFailed


def move_ended(state: State, event: MoveEnded, now: float) -> Device | None:
    """What came of a move."""
    found = state.sessions.get(event.session)
    out = isinstance(event, (events.SessionEvicted, events.EvictionFailed))
    expected = Residency.EVICTING if out else Residency.RESTORING
    parts = found.parts if found is not None else ()
    session = next((one for one in parts if one.move == event.move and one.residency is expected), None)
    if session is None:
        return state.ignore(event)
    match event:
        case events.SessionEvicted():
            moves.evicted(state, session, event.seconds, event.freed_bytes, now)
        case events.EvictionFailed():
            moves.eviction_failed(state, session, now)
        case events.SessionRestored():
            moves.restored(state, session, event.seconds, now)
        case events.RestoreFailed():
            moves.restore_failed(state, session, now)
        case _ as never:
            assert_never(never)
    session.device.stale = session.device.stale or session.device.policy.preempts
    return session.device


def device_measured(state: State, event: events.DeviceMeasured, now: float) -> Device:
    """A device is there, or its figures changed."""
    device = state.devices.get(event.device)
    if device is None:
        ledger = Ledger(event.device, event.capacity_bytes, event.foreign_bytes, event.reserve_bytes)
        config = state.config
        policy = policies.make(policies.NAMES[0], config)
        device = Device(event.device, ledger, Pace(config), policy, moves=event.moves, side_by_side=event.side_by_side)
        device.kind = event.kind
        device.move_credit_at = now
        device.move_cost = (config.move_s, 1.0 / config.move_bytes_per_s)
        state.devices[event.device] = device
        return device
    device.ledger.observe_device(event.capacity_bytes, event.foreign_bytes, event.reserve_bytes)
    device.moves, device.side_by_side, device.kind = event.moves, event.side_by_side, event.kind
    device.stale = True
    if not device.side_by_side:
        for holder in device.holders:
            holder.resumed = True
    if device.ledger.free < 0:
        shed(device, 0)
    return device
