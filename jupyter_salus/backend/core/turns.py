"""Turns: given, revoked, stopped, released. What a turn does to lanes and ledger is here; who gets one is in `plan`.

An epoch numbers each turn, growing over all sessions, so whatever names an old one is late and ignored.

A revoked turn that doesn't end is escalated, each step with its deadline: ask (`RevokeTurn`), stop in mid-iteration
(`StopTurn`, again after 1, 2 and 4 s), take the turn back in the books. In the last case the session's E counts as
stopped, so SAFE holds while it goes on as it likes, it is charged for the time, and gets no turn before it answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .deadlines import Due
from .decisions import CountOut, GrantTurn, RevokeTurn, StopTurn
from .find import shed, take_lane
from .gang import unclaim
from .transitions import Residency, Turn

if TYPE_CHECKING:
    from .session import Session
    from .state import State


def begin_wait(state: State, session: Session, ticket: int, now: float) -> None:
    """The session wants a turn from now on; its starvation clock starts."""
    for part in session.parts:
        device = part.device
        part.to_turn(Turn.WAITING)
        part.ticket = ticket
        part.waiting_since = now
        state.deadlines.set(now + device.policy.max_wait_s, Due.STARVING, device, part, part.epoch)
        state.file(part, now)
        if part is not session:
            state.look[device] = None


def end_wait(state: State, session: Session, now: float) -> None:
    """The session wants no turn any more, or got one: its clock stops."""
    if session.waiting_since is not None:
        session.waited_s += now - session.waiting_since
    session.waiting_since = None
    session.starving = False
    session.told = ""


def quantum_s(state: State, session: Session) -> float:
    """How long a turn lasts while others wait: longer where hand-overs are dear, except while an interactive one waits."""
    config = state.config
    device = session.device
    longer = min(device.handover_s / config.handover_share, config.quantum_limit_s)
    if longer <= config.quantum_s:
        return config.quantum_s
    first = device.waiting.first()
    if first is not None and state.interactive(first, session.granted_at):
        return config.quantum_s
    return longer


def begin_quantum(state: State, session: Session, now: float) -> None:
    """The session's quantum begins now; it has no end where running costs nobody its place.

    The end is looked at if it could matter: somebody waits for it.
    """
    device = session.device
    after_s = 0.0 if session.starved_turn else device.policy.rotates_s(session)
    if after_s is None:
        session.quantum_end = float("inf")
        return
    session.quantum_end = max(now + quantum_s(state, session), now + after_s)
    if len(device.waiting):
        watch_quantum(state, session)


def shorten_quantum(state: State, holder: Session, now: float) -> None:
    """An interactive one began to wait: a quantum that is long because hand-overs are dear ends after a plain one."""
    if holder.turn is Turn.RUNNING and holder.device.policy.rotates_s(holder) == 0.0:
        holder.quantum_end = min(holder.quantum_end, now + state.config.quantum_s)
        watch_quantum(state, holder)


def grant(state: State, session: Session, now: float) -> None:
    """Give the session a turn in a lane of its own for as long, on each of its devices. The caller saw that it fits."""
    epoch = state.next_number()
    unclaim(state, session, now)
    lanes = [_place(state, part, epoch, now) for part in session.parts]
    side_by_side = any(len(part.device.holders) > 1 for part in session.parts)
    told = tuple(lanes) if session.gang else ()
    state.outbox.append(GrantTurn(session.id, epoch, session.ticket, lanes[0], side_by_side=side_by_side, lanes=told))


def _place(state: State, session: Session, epoch: int, now: float) -> str:
    """A turn on one device; the lane's id."""
    device = session.device
    if session.residency is Residency.ABSENT:
        admit(state, session, now)
    lane = take_lane(device, session, alone=state.config.lanes == "off")
    session.to_turn(Turn.RUNNING)
    lane.hold(session)
    device.holders.append(session)
    device.staying.add(session, device.pace.share(session))
    starved = session.starving
    end_wait(state, session, now)
    session.starved_turn = starved
    session.yielded = False
    session.epoch = epoch
    session.turns += 1
    session.stops = 0
    session.handed_over = session.resumed = False
    session.granted_at = session.charged_at = now
    state.file(session, now)
    begin_quantum(state, session, now)
    return lane.id


def admit(state: State, session: Session, now: float) -> None:
    """Make room for the P of a session that was never here; it is resident from now on. The caller saw that it fits."""
    entry = session.entry_bytes
    shed(session.device, entry)
    state.hold(session, entry)
    session.to_residency(Residency.RESIDENT)
    state.file(session, now)


def watch_quantum(state: State, session: Session) -> None:
    """Look at the session's place when its quantum ends."""
    if session.quantum_end != session.watched_at and session.quantum_end != float("inf"):
        session.watched_at = session.quantum_end
        state.deadlines.set(session.quantum_end, Due.QUANTUM, session.device, session, session.epoch)


def revoke(state: State, session: Session, now: float) -> None:
    """Ask for the turn back at the next boundary. What is blocked elsewhere is asked once it goes on."""
    asked = any(part.turn is Turn.YIELDING or part.turn is Turn.STOPPING for part in session.gang)
    for part in session.parts:
        if part.turn is Turn.RUNNING:
            part.to_turn(Turn.YIELDING)
            part.device.staying.discard(part)
    if asked:
        return
    for part in session.parts:
        part.asked_at = now
    config = state.config
    known = [seconds for seconds in (session.alone_s, session.beside_s) if seconds]
    deadline_s = max(config.revoke_iterations * max(known), config.revoke_least_s) if known else config.revoke_unknown_s
    state.deadlines.set(now + deadline_s, Due.REVOKED, session.device, session, session.epoch)
    state.outbox.append(RevokeTurn(session.id, session.epoch, deadline_s))


def escalate(state: State, session: Session, now: float) -> None:
    """A revoked turn's deadline is over: stop it, stop it again, in the end take it back in the books."""
    waits = state.config.stop_waits_s
    if any(part.turn is Turn.BLOCKED for part in session.gang):
        # It can't come to a boundary before it has its memory.
        again = now + state.config.revoke_least_s
        state.deadlines.set(again, Due.REVOKED, session.device, session, session.epoch)
        return
    if session.stops < len(waits):
        for part in session.parts:
            if part.turn is Turn.YIELDING:
                part.to_turn(Turn.STOPPING)
        state.deadlines.set(now + waits[session.stops], Due.REVOKED, session.device, session, session.epoch)
        session.stops += 1
        state.outbox.append(StopTurn(session.id, session.epoch))
        return
    state.outbox.append(CountOut(session.id, session.epoch))
    for part in session.parts:
        if part.turn is Turn.RUNNING:
            part.to_turn(Turn.YIELDING)
        if part.turn is Turn.YIELDING:
            part.to_turn(Turn.STOPPING)
        part.to_turn(Turn.LOST)
        _leave(state, part, part.lane_bytes, now)
        state.file(part, now)
        if part is not session:
            state.look[part.device] = None


def release(state: State, session: Session, ticket: int | None, stopped: Mapping[str, int], now: float) -> None:
    """The turn is over: at a boundary, or in mid-iteration with `stopped` bytes still held by device. With a ticket it
    waits on."""
    for part in session.parts:
        held = stopped.get(part.device.id, 0)
        if part.turn is Turn.LOST:
            state.charge(part, now)
            part.device.ledger.observe_stopped(held - part.stopped_bytes)
            part.stopped_bytes = held
            part.mapped_bytes = held
            part.ran_at = now
        else:
            _leave(state, part, held, now)
        part.growth = None
        if ticket is None:
            part.to_turn(Turn.NONE)
            state.file(part, now)
        if part is not session:
            state.look[part.device] = None
    if ticket is not None:
        begin_wait(state, session, ticket, now)


def withdraw(state: State, session: Session, now: float) -> None:
    """The session wants no turn any more. What it still holds of an iteration it keeps."""
    unclaim(state, session, now)
    for part in session.parts:
        part.growth = None
        part.to_turn(Turn.NONE)
        end_wait(state, part, now)
        state.file(part, now)


def suspend(state: State, session: Session, now: float) -> None:
    """Take the turn from a session that waits for room in mid-iteration; its request stays, and it waits for a turn."""
    for part in session.parts:
        _leave(state, part, part.mapped_bytes, now)
    begin_wait(state, session, session.ticket, now)


def _leave(state: State, session: Session, stopped_bytes: int, now: float) -> None:
    """Give the lane to others. What is still held of E counts by itself, beside the lanes."""
    device = session.device
    state.charge(session, now)
    lane = session.lane
    assert lane is not None, "a session with a turn has a lane"
    lane.let_go()
    device.holders.remove(session)
    device.staying.discard(session)
    device.unblock(session)
    session.ran_at = now
    session.starved_turn = False
    session.mapped_bytes = stopped_bytes
    if stopped_bytes:
        device.leave_lane(session)
        session.stopped_bytes = stopped_bytes
        device.ledger.observe_stopped(stopped_bytes)
        shed(device, 0)
    elif session.need_bytes < session.lane_bytes:
        lane.resize(session, session.need_bytes)


def drop(state: State, session: Session, now: float) -> None:
    """The session is gone or broken: its turn ends at once. E that it may still hold counts as stopped."""
    unclaim(state, session, now)
    for part in session.parts:
        if part.holds:
            _leave(state, part, part.lane_bytes, now)
        elif part.turn is Turn.LOST:
            state.charge(part, now)
        if part.turn is not Turn.NONE:
            part.to_turn(Turn.NONE)
        end_wait(state, part, now)
        part.growth = None
        if part is not session:
            state.look[part.device] = None
