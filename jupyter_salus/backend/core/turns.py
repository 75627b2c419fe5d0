"""Turns: given, revoked, stopped, released. What a turn does to lanes and ledger is here; who gets one is in `plan`.

An epoch numbers each turn, growing over all sessions, so whatever names an old one is late and ignored.

A revoked turn that doesn't end is escalated, each step with its deadline: ask (`RevokeTurn`), stop in mid-iteration
(`StopTurn`, again after 1, 2 and 4 s), take the turn back in the books. In the last case the session's E counts as
stopped, so SAFE holds while it goes on as it likes, and it gets no turn before it answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .deadlines import Due
from .decisions import GrantTurn, RevokeTurn, StopTurn
from .find import shed, take_lane
from .transitions import Residency, Turn

if TYPE_CHECKING:
    from .session import Session
    from .state import State


def begin_wait(state: State, session: Session, ticket: int, now: float) -> None:
    """The session wants a turn from now on; its starvation clock starts."""
    session.to_turn(Turn.WAITING)
    session.ticket = ticket
    session.waiting_since = now
    state.deadlines.set(now + session.device.policy.max_wait_s, Due.STARVING, session.device, session, session.epoch)
    state.file(session, now)


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
    """Give the session a turn in a lane of its own for as long. The caller saw that it fits."""
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
    session.epoch = state.next_number()
    session.turns += 1
    session.stops = 0
    session.handed_over = session.resumed = False
    session.granted_at = session.charged_at = now
    state.file(session, now)
    begin_quantum(state, session, now)
    state.outbox.append(
        GrantTurn(session.id, session.epoch, session.ticket, lane.id, side_by_side=len(device.holders) > 1)
    )


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
    """Ask for the turn back at the next boundary."""
    session.to_turn(Turn.YIELDING)
    session.device.staying.discard(session)
    config = state.config
    known = [seconds for seconds in (session.alone_s, session.beside_s) if seconds]
    deadline_s = max(config.revoke_iterations * max(known), config.revoke_least_s) if known else config.revoke_unknown_s
    state.deadlines.set(now + deadline_s, Due.REVOKED, session.device, session, session.epoch)
    state.outbox.append(RevokeTurn(session.id, session.epoch, deadline_s))


def escalate(state: State, session: Session, now: float) -> None:
    """A revoked turn's deadline is over: stop it, stop it again, in the end take it back in the books."""
    waits = state.config.stop_waits_s
    if session.stops < len(waits):
        if session.turn is Turn.YIELDING:
            session.to_turn(Turn.STOPPING)
        state.deadlines.set(now + waits[session.stops], Due.REVOKED, session.device, session, session.epoch)
        session.stops += 1
        state.outbox.append(StopTurn(session.id, session.epoch))
        return
    session.to_turn(Turn.LOST)
    _leave(state, session, session.lane_bytes, now)
    state.file(session, now)


def release(state: State, session: Session, ticket: int | None, stopped_bytes: int, now: float) -> None:
    """The turn is over: at a boundary, or in mid-iteration with `stopped_bytes` still held. With a ticket it waits on."""
    if session.turn is Turn.LOST:
        session.device.ledger.observe_stopped(stopped_bytes - session.stopped_bytes)
        session.stopped_bytes = stopped_bytes
        session.mapped_bytes = stopped_bytes
        session.ran_at = now
    else:
        _leave(state, session, stopped_bytes, now)
    session.growth = None
    if ticket is None:
        session.to_turn(Turn.NONE)
        state.file(session, now)
    else:
        begin_wait(state, session, ticket, now)


def withdraw(state: State, session: Session, now: float) -> None:
    """The session wants no turn any more. What it still holds of an iteration it keeps."""
    session.growth = None
    session.to_turn(Turn.NONE)
    end_wait(state, session, now)
    state.file(session, now)


def suspend(state: State, session: Session, now: float) -> None:
    """Take the turn from a session that waits for room in mid-iteration; its request stays, and it waits for a turn."""
    _leave(state, session, session.mapped_bytes, now)
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
    if session.holds:
        _leave(state, session, session.lane_bytes, now)
    if session.turn is not Turn.NONE:
        session.to_turn(Turn.NONE)
    end_wait(state, session, now)
    session.growth = None
