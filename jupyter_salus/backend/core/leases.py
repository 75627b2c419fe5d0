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
from .user import Seat, User

if TYPE_CHECKING:
    from .device import Device
    from .state import State

#: A peer that is gone leaves its bytes so soon that nobody is moved for them.
LEAVES_S = 5.0


def opened(state: State, event: events.SessionOpened, now: float) -> Device:
    """A session is there. Raises `BadValue`, `UnknownDevice` and `OverLimit`."""
    devices = _devices(state, event)
    if event.holding and event.out_bytes:
        raise BadValue(f"cannot open session {event.session!r}: it can't have a turn and be in host memory")
    if event.session in state.sessions:
        raise BadValue(f"cannot open session {event.session!r}: it is open already", {"session": event.session})
    wanted = priority(event.priority)
    user = state.users.get(event.user)
    if user is not None and not (event.holding or event.persistent_bytes or event.out_bytes):
        limits.check_seat(user, event.session)
    user = state.user(event.user)
    parts = tuple(_made(state, event, user, device, limits.capped(user, wanted), now) for device in devices)
    session = parts[0]
    if len(parts) > 1:
        for part in parts:
            part.gang = parts
    seat = user.seats.pop(session.id, None)
    if seat is not None:
        session.credit, session.virtual_s = seat.credit, seat.virtual_s
    user.sessions[session.id] = session
    state.sessions[session.id] = session
    _come_back(state, session, event)
    if event.holding:
        _resume(state, session, now)
    for part in parts:
        state.file(part, now)
    return session.device


def _devices(state: State, event: events.SessionOpened) -> list[Device]:
    """The session's devices in their order."""
    if not event.devices:
        return [state.device(event.device)]
    named = {state.device(name).id for name in event.devices}
    if len(named) < len(event.devices) or event.device not in named:
        raise BadValue(
            f"cannot open session {event.session!r} on devices {', '.join(event.devices)}: {event.device} must be one of "
            "them, and none twice"
        )
    return [device for device in state.devices.values() if device.id in named]


def _made(state: State, event: events.SessionOpened, user: User, device: Device, priority: str, now: float) -> Session:
    """The session on one device."""
    session = Session(
        id=event.session,
        number=state.next_number(),
        user=user,
        device=device,
        priority=priority,
        evictable=event.evictable or event.out_bytes > 0,
        opened_at=now,
        credit=Credit(now, state.config.credit_window_s),
        profile=event.profile if event.profile is not None else NO_PROFILE,
        roams=event.roams and len(event.devices) < 2,
    )
    session.weight = state.weights[session.priority]
    session.window_start = now
    state.account(user, device, now)
    return session


def _come_back(state: State, session: Session, event: events.SessionOpened) -> None:
    """What a session had that comes back to a new backend."""
    if event.out_bytes:
        session.persistent_bytes = event.persistent_bytes + event.out_bytes
        session.to_residency(Residency.EVICTED)
        session.out_bytes = event.out_bytes
        state.observe(session, event.persistent_bytes)
        session.device.fixed_bytes += event.persistent_bytes
        state.put_in_host(session, event.out_bytes)
    elif event.persistent_bytes or event.holding:
        session.persistent_bytes = event.persistent_bytes
        for part in session.parts if event.holding else (session,):
            part.to_residency(Residency.RESIDENT)
        state.observe(session, event.persistent_bytes)


def _resume(state: State, session: Session, now: float) -> None:
    """It came back to a new backend in the middle of its turn: that turn goes on, under a new epoch."""
    over = {part.device: part.device.over_capacity for part in session.parts}
    for part in session.parts:
        part.device.over_capacity = True
        part.to_turn(Turn.WAITING)
        part.arrived_at = part.waiting_since = now
    turns.grant(state, session, now)
    for part in session.parts:
        part.resumed = True
        part.device.over_capacity = over[part.device]


def evictable(state: State, event: events.EvictableChanged, now: float) -> Device:
    """Whether the session can be moved isn't what it was."""
    session = state.session(event.session)
    for part in session.parts:
        if part.evictable is not event.evictable:
            part.evictable = event.evictable
            if part.residency is not Residency.EVICTED:
                part.device.fixed_bytes += -part.held_bytes if event.evictable else part.held_bytes
            state.file(part, now)
            state.look[part.device] = None
    return session.device


def lost(state: State, event: events.LeaseLost, now: float) -> Device:
    """The peer is gone."""
    session = state.session(event.session)
    turns.drop(state, session, now)
    for part in session.parts:
        _leave(state, part, now)
    del state.sessions[session.id]
    del session.user.sessions[session.id]
    state.leaving.setdefault(session.id, []).append(session)
    if event.restarts:
        _keep_seat(state, session, now)
    return session.device


def _leave(state: State, part: Session, now: float) -> None:
    """On one device: its bytes are expected back soon."""
    device = part.device
    if part.residency is Residency.EVICTING:
        device.going_bytes -= part.held_bytes
    elif part.residency is Residency.EVICTED and part.evictable:
        device.fixed_bytes -= part.held_bytes
    state.put_in_host(part, 0)
    device.moving.pop(part.id, None)
    device.leave_lane(part)
    part.to_residency(Residency.LEAVING)
    state.forget(part)
    if part in device.overgrown:
        device.overgrown.remove(part)
    part.going = True
    device.going_bytes += part.held_bytes
    state.deadlines.set(now + LEAVES_S, Due.LEAVING, device, part)


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
    """The devices show a leaving session's bytes as free. Raises `UnknownSession`."""
    gone = state.leaving.get(event.session)
    if not gone:
        raise UnknownSession(f"cannot free the bytes of session {event.session!r}: it isn't leaving")
    session = gone.pop(0)
    if not gone:
        del state.leaving[event.session]
    for part in session.parts:
        left_in_time(part)
        state.hold(part, -part.held_bytes)
        part.device.ledger.observe_stopped(-part.stopped_bytes)
        part.stopped_bytes = 0
        part.to_residency(Residency.CLOSED)
        if part is not session:
            state.look[part.device] = None
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
    for part in session.parts:
        part.broken = event.message
        state.file(part, now)
    return session.device


def priority(value: str) -> str:
    """The value, if it is a priority. Raises `BadValue`."""
    if value not in CLASSES:
        raise BadValue(f"cannot use priority {value!r}: it must be one of {', '.join(CLASSES)}", {"value": value})
    return value
