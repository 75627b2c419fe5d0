"""Growing needs: a request for memory is met, not refused (rule 4), and deadlocks are resolved (rule 5).

A request that its lane can hold is granted at once; a lane is widened from what is free or what members at a boundary
don't need. Otherwise the session waits in mid-iteration (`Turn.BLOCKED`): `plan` counts what it asks for as its need, so
that other holders that no longer fit beside it are revoked and take turns with it (lanes merged), and victims are moved
for what is still short. If everybody who holds a turn waits like this and no move is under way, the one cheapest to
move goes out whole; having learned what both need, they are never let in side by side again. If nobody can be moved,
the youngest request is refused.

A request that only processes outside stand in the way of isn't refused: they may end. The session steps aside until
there is room: its turn is over, its gate is closed (`SuspendTurn`), others run and may have its place, and it is asked
for nothing but to wait. What no device of this capacity could ever give is refused at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import NotPossible
from . import moves, turns
from .deadlines import Due
from .decisions import GrantGrowth, RefuseGrowth, SuspendTurn
from .find import room_if_lanes_shrink, shed
from .session import Growth
from .transitions import Residency, Turn

if TYPE_CHECKING:
    from .device import Device
    from .session import Session
    from .state import State


def ask(state: State, session: Session, request: int, extra_bytes: int, now: float) -> None:
    """A session in a turn asks for more. Raises `NotPossible` if it has no turn or waits for a request already."""
    if not session.holds or session.growth is not None:
        what = "has no turn" if not session.holds else "waits for an earlier request"
        raise NotPossible(f"cannot give session {session.id} {extra_bytes} more bytes: it {what}")
    device = session.device
    total = session.mapped_bytes + extra_bytes
    if session.held_bytes + total > device.ledger.limit + device.ledger.foreign:
        state.outbox.append(RefuseGrowth(session.id, request, _refusal(session, extra_bytes)))
        return
    most = session.user.limits.persistent_bytes
    if most is not None and session.held_bytes > most:
        message = (
            f"cannot give {extra_bytes} more bytes to session {session.id}: it holds {session.held_bytes} at its boundaries, "
            f"the limit of all sessions of {session.user.name} is {most}"
        )
        state.outbox.append(RefuseGrowth(session.id, request, message))
        return
    session.learn_ephemeral(total, now, state.config.memory_window_s)
    session.growth = Growth(request, extra_bytes, now)
    if not _grow(state, session, now):
        session.to_turn(Turn.BLOCKED)
        device.block(session)
        state.file(session, now)


def withdraw(state: State, session: Session, request: int, now: float) -> bool:
    """The session doesn't wait for this request any more; False: it didn't."""
    for part in session.parts:
        if part.growth is not None and part.growth.request == request:
            part.growth = None
            # What it gave up before it had it isn't what it needs: or it would wait for room for that from now on.
            part.unlearn_ephemeral(part.mapped_bytes)
            if part.turn is Turn.BLOCKED:
                _go_on(state, part, now)
            else:
                state.file(part, now)
            state.look[part.device] = None
            return True
    return False


def serve(state: State, device: Device, now: float) -> None:
    """Grant the requests that can be granted now, oldest first."""
    for session in list(device.blocked):
        if _grow(state, session, now):
            _go_on(state, session, now)


def step_aside(state: State, device: Device, now: float) -> None:
    """End the turns of those that wait for what processes outside have."""
    for session in list(device.blocked):
        if session.growth is not None and _lacks_outside(session):
            _suspend(state, session, now)
            session.growth.outside = True
            state.file(session, now)


def come_in(state: State, device: Device, now: float) -> None:
    """Those that stepped aside wait like all others once they could have what they asked for."""
    aside: list[Session] = []
    for session in reversed(device.waiting):
        if not session.outside:
            break  # they are the last ones
        aside.append(session)
    for session in aside:
        if session.growth is not None and not _lacks_outside(session):
            session.growth.outside = False
            state.file(session, now)
            state.deadlines.set(now + device.policy.max_wait_s, Due.STARVING, device, session, session.epoch)


def take_up(state: State, session: Session, now: float) -> None:
    """A session that was stopped while it waited for room has a turn again: it goes on asking."""
    for part in session.parts:
        if part.growth is not None:
            part.to_turn(Turn.BLOCKED)
            part.device.block(part)
            state.file(part, now)
            state.look[part.device] = None


def _go_on(state: State, session: Session, now: float) -> None:
    """A holder waits for room no more."""
    device = session.device
    session.to_turn(Turn.RUNNING)
    device.unblock(session)
    device.staying.add(session, device.pace.share(session))
    state.file(session, now)


def resolve_deadlock(state: State, device: Device, now: float) -> bool:
    """If all holders wait for room and nothing is on its way, move one out whole or refuse; True: something changed."""
    if not device.holders or device.moving or device.going_bytes:
        return False
    if any(all(part.growth is None for part in holder.parts) for holder in device.holders):
        return False
    movable = [holder for holder in device.holders if all(_movable(part, now) for part in holder.parts)]
    if movable and len(device.holders) > 1:
        victim = min(movable, key=lambda one: (one.pinned, _moved_bytes(one), one.number))
        turns.suspend(state, victim, now)
        for part in victim.parts:
            moves.evict(state, part, "deadlock", now)
    else:
        blocked = [part for holder in device.holders for part in holder.parts if part.growth is not None]
        victim = max(blocked, key=_since)
        growth = victim.growth
        assert growth is not None, "a blocked session has a request"
        if 0 < _short_bytes(victim, growth) <= device.ledger.foreign:
            _suspend(state, victim, now)
            return True
        state.outbox.append(RefuseGrowth(victim.id, growth.request, _refusal(victim, growth.extra_bytes)))
        withdraw(state, victim, growth.request, now)
    return True


def _suspend(state: State, session: Session, now: float) -> None:
    """Take the turn of a session that goes on waiting, and leave its bytes where they are."""
    state.outbox.append(SuspendTurn(session.id, session.epoch))
    turns.suspend(state, session, now)
    for part in session.parts:
        state.look[part.device] = None


def _lacks_outside(session: Session) -> bool:
    """Whether it couldn't have what it asks for even if it had the device alone."""
    growth = session.growth
    if growth is None:
        return False
    has = session.held_bytes
    if session.residency is Residency.RESIDENT:
        has += session.mapped_bytes
    elif session.residency is Residency.EVICTED:
        has += session.out_bytes
    return has + growth.extra_bytes > session.device.ledger.limit


def _short_bytes(session: Session, growth: Growth) -> int:
    """What a holder's lane can't be widened by, of its request."""
    return session.mapped_bytes + growth.extra_bytes - session.lane_bytes - room_if_lanes_shrink(session.device)


def _moved_bytes(session: Session) -> int:
    return sum(part.held_bytes + part.mapped_bytes for part in session.parts)


def _movable(session: Session, now: float) -> bool:
    """Whether it could go out whole; it needn't have any P."""
    return session.device.moves and session.evictable and session.refused_until <= now


def wanted_bytes(session: Session) -> int:
    """What a holder's lane must offer, its request included."""
    extra = session.growth.extra_bytes if session.growth is not None else 0
    return max(session.lane_bytes, session.mapped_bytes + extra)


def _grow(state: State, session: Session, now: float) -> bool:
    """Grant the session's request if its lane can hold it, widened if need be."""
    growth, lane, device = session.growth, session.lane, session.device
    assert growth is not None and lane is not None, "a holder with a request"
    total = session.mapped_bytes + growth.extra_bytes
    if total > session.lane_bytes:
        if not shed(device, total - lane.size, keep=lane):
            return False
        lane.resize(session, total)
        device.recount(session)
    session.mapped_bytes = total
    session.growth = None
    state.outbox.append(GrantGrowth(session.id, growth.request))
    return True


def _since(session: Session) -> tuple[float, int]:
    growth = session.growth
    return (growth.since if growth is not None else 0.0, session.number)


def _refusal(session: Session, extra_bytes: int) -> str:
    """Who holds what, for the framework's out-of-memory error."""
    device = session.device
    ledger = device.ledger
    others = ledger.given - session.held_bytes - session.lane_bytes - session.stopped_bytes
    return (
        f"cannot give {extra_bytes} more bytes of device {device.id}: this session holds "
        f"{session.held_bytes + session.mapped_bytes}, others {max(others, 0)}, foreign processes {ledger.foreign}, "
        f"{ledger.reserve} are reserved, of {ledger.capacity}"
    )
