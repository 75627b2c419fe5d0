"""Sessions come and go: opened, lost, their bytes freed, broken; and the seats that are kept for those that come back.

The lease is the peer's connection. When it is lost, turn and place in queues end at once; the bytes count until the
device shows them as free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import BadValue, UnknownSession
from . import events, limits, turns
from .credit import Credit
from .deadlines import Due
from .session import CLASSES, NO_PROFILE, Session
from .transitions import Residency, Turn
from .user import Seat

if TYPE_CHECKING:
    from .device import Device
    from .state import State

#: A peer that is gone leaves its bytes so soon that nobody is moved for them.
LEAVES_S = 5.0


def opened(state: State, event: events.SessionOpened, now: float) -> Device:
    """A session is there. Raises `BadValue`, `UnknownDevice` and `OverLimit`."""
    device = state.device(event.device)
    if event.holding and event.out_bytes:
        raise BadValue(f"cannot open session {event.session!r}: it can't have a turn and be in host memory")
    if event.session in state.sessions:
        raise BadValue(f"cannot open session {event.session!r}: it is open already", {"session": event.session})
    wanted = priority(event.priority)
    user = state.users.get(event.user)
    if user is not None and not (event.holding or event.persistent_bytes or event.out_bytes):
        limits.check_seat(user, event.session)
    user = state.user(event.user)
    session = Session(
        id=event.session,
        number=state.next_number(),
        user=user,
        device=device,
        priority=limits.capped(user, wanted),
        evictable=event.evictable or event.out_bytes > 0,
        opened_at=now,
        credit=Credit(now, state.config.credit_window_s),
        profile=event.profile if event.profile is not None else NO_PROFILE,
    )
    session.weight = state.weights[session.priority]
    session.window_start = now
    state.account(user, device, now)
    seat = user.seats.pop(session.id, None)
    if seat is not None:
        session.credit, session.virtual_s = seat.credit, seat.virtual_s
    user.sessions[session.id] = session
    state.sessions[session.id] = session
    if event.out_bytes:
        session.persistent_bytes = event.persistent_bytes + event.out_bytes
        session.to_residency(Residency.EVICTED)
        session.out_bytes = event.out_bytes
        state.observe(session, event.persistent_bytes)
        device.fixed_bytes += event.persistent_bytes
        state.put_in_host(session, event.out_bytes)
    elif event.persistent_bytes or event.holding:
        session.persistent_bytes = event.persistent_bytes
        session.to_residency(Residency.RESIDENT)
        state.observe(session, event.persistent_bytes)
    if event.holding:
        _resume(state, session, now)
    state.file(session, now)
    return device


def _resume(state: State, session: Session, now: float) -> None:
    """It came back to a new backend in the middle of its turn: that turn goes on, under a new epoch."""
    device = session.device
    over, device.over_capacity = device.over_capacity, True
    session.to_turn(Turn.WAITING)
    session.arrived_at = session.waiting_since = now
    turns.grant(state, session, now)
    session.resumed = True
    device.over_capacity = over


def evictable(state: State, event: events.EvictableChanged, now: float) -> Device:
    """Whether the session can be moved isn't what it was."""
    session = state.session(event.session)
    if session.evictable is not event.evictable:
        session.evictable = event.evictable
        if session.residency is not Residency.EVICTED:
            session.device.fixed_bytes += -session.held_bytes if event.evictable else session.held_bytes
        state.file(session, now)
    return session.device


def lost(state: State, event: events.LeaseLost, now: float) -> Device:
    """The peer is gone."""
    session = state.session(event.session)
    device = session.device
    turns.drop(state, session, now)
    if session.residency is Residency.EVICTING:
        device.going_bytes -= session.held_bytes
    elif session.residency is Residency.EVICTED and session.evictable:
        device.fixed_bytes -= session.held_bytes
    state.put_in_host(session, 0)
    device.moving.pop(session.id, None)
    device.leave_lane(session)
    session.to_residency(Residency.LEAVING)
    state.forget(session)
    if session in device.overgrown:
        device.overgrown.remove(session)
    session.going = True
    device.going_bytes += session.held_bytes
    state.deadlines.set(now + LEAVES_S, Due.LEAVING, device, session)
    del state.sessions[session.id]
    del session.user.sessions[session.id]
    state.leaving.setdefault(session.id, []).append(session)
    if event.restarts:
        _keep_seat(state, session, now)
    return device


def _keep_seat(state: State, session: Session, now: float) -> None:
    seat = Seat(state.next_number(), session.credit, session.virtual_s)
    session.user.seats[session.id] = seat
    state.deadlines.set(now + state.config.seat_s, Due.SEAT, session.device, session, seat.number)


def seat_over(session: Session, mark: int) -> None:
    """A kernel that was to restart didn't come back in time."""
    seat = session.user.seats.get(session.id)
    if seat is not None and seat.number == mark:
        del session.user.seats[session.id]


def seat_left(state: State, event: events.SeatLeft) -> None:
    """Nobody comes back to a seat, whoever's it is; that none is kept is fine."""
    for user in state.users.values():
        user.seats.pop(event.session, None)


def bytes_freed(state: State, event: events.BytesFreed) -> Device:
    """The device shows a leaving session's bytes as free. Raises `UnknownSession`."""
    gone = state.leaving.get(event.session)
    if not gone:
        raise UnknownSession(f"cannot free the bytes of session {event.session!r}: it isn't leaving")
    session = gone.pop(0)
    if not gone:
        del state.leaving[event.session]
    left_in_time(session)
    state.hold(session, -session.held_bytes)
    session.device.ledger.observe_stopped(-session.stopped_bytes)
    session.stopped_bytes = 0
    session.to_residency(Residency.CLOSED)
    return session.device


def left_in_time(session: Session) -> bool:
    """The bytes of a peer that is gone are expected no more; False: they weren't."""
    if not session.going:
        return False
    session.going = False
    session.device.going_bytes -= session.held_bytes
    return True


def broken(state: State, event: events.SessionBroken, now: float) -> Device:
    """A sticky device error: no more turns."""
    session = state.session(event.session)
    turns.drop(state, session, now)
    session.broken = event.message
    state.file(session, now)
    return session.device


def priority(value: str) -> str:
    """The value, if it is a priority. Raises `BadValue`."""
    if value not in CLASSES:
        raise BadValue(f"cannot use priority {value!r}: it must be one of {', '.join(CLASSES)}", {"value": value})
    return value
