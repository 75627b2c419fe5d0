"""What people ask for: priorities, pins, turns passed on, moves, policies, and what users may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import BadValue, NotPossible, OverLimit
from . import events, limits, moves, policies, turns
from .deadlines import Due
from .find import room_if_lanes_shrink, shed
from .leases import priority
from .session import CLASSES
from .transitions import Residency, Turn
from .user import Limits

if TYPE_CHECKING:
    from .device import Device
    from .session import Session
    from .state import State


def prioritize(state: State, event: events.PriorityChanged, now: float) -> Device:
    """Raises `BadValue`, and `OverLimit` for a priority that the session's user may not have."""
    session = state.session(event.session)
    limits.check_priority(session.user, session.id, priority(event.priority))
    _set_priority(state, session, event.priority, now)
    return session.device


def _set_priority(state: State, session: Session, value: str, now: float) -> None:
    for part in session.parts:
        part.priority = value
        part.weight = state.weights[value]
        part.device.stale = True
        state.file(part, now)
        state.look[part.device] = None


def pin(state: State, event: events.PinChanged, now: float) -> Device:
    """A pinned session is evicted last."""
    session = state.session(event.session)
    for part in session.parts:
        part.pinned = event.pinned
        state.file(part, now)
    return session.device


def pass_on(state: State, event: events.YieldAsked, now: float) -> Device:
    """Raises `NotPossible` if the session has no turn to pass on."""
    session = state.session(event.session)
    if session.turn is not Turn.RUNNING:
        raise NotPossible(f"cannot let session {session.id} pass its turn on: it has none ({session.turn.value})")
    for part in session.parts:
        part.yielded = True
        state.look[part.device] = None
    turns.revoke(state, session, now)
    return session.device


def evict(state: State, event: events.EvictAsked, now: float) -> Device:
    """Raises `NotPossible`, and `OverLimit` if the user's host memory is used up."""
    session = state.session(event.session)
    here = [part for part in session.parts if part.residency is Residency.RESIDENT]
    for part in session.parts:
        if not part.device.moves or not part.evictable:
            raise NotPossible(f"cannot move session {session.id} out: device {part.device.id} can't move it")
    if not here:
        raise NotPossible(f"cannot move session {session.id} out: it is {session.residency.value}")
    if state.host_room(session, sum(part.held_bytes + part.stopped_bytes for part in here if part is not session)) < 0:
        user = session.user
        raise OverLimit(
            f"cannot move session {session.id} out: {user.name} has {user.host_bytes} bytes in host memory, it would be "
            f"{sum(part.held_bytes + part.stopped_bytes for part in here)} more, the limit is {user.limits.host_bytes}",
            {"limit": "host_bytes"},
        )
    for part in here:
        if part.turn in (Turn.NONE, Turn.WAITING):
            moves.evict(state, part, "asked for", now)
        else:
            part.evict_asked = True
            if part.turn is Turn.RUNNING:
                turns.revoke(state, part, now)
        state.look[part.device] = None
    return session.device


def restore(state: State, event: events.RestoreAsked, now: float) -> Device:
    """Raises `NotPossible`, and `OverLimit` if its user has too much on devices already."""
    session = state.session(event.session)
    out = [part for part in session.parts if part.residency is Residency.EVICTED]
    if not out:
        raise NotPossible(f"cannot bring session {session.id} back: it is {session.residency.value}")
    for part in out:
        _check_return(part)
    for part in out:
        if limits.may_enter(part):
            shed(part.device, part.out_bytes)
            moves.restore(state, part, now)
            state.look[part.device] = None
    return session.device


def _check_return(session: Session) -> None:
    if session.device.draining is not None:
        raise NotPossible(f"cannot bring session {session.id} back: device {session.device.id} is drained")
    if not limits.may_enter(session):
        user = session.user
        raise OverLimit(
            f"cannot bring session {session.id} back: {user.name} has {user.held_bytes} bytes on devices, it would be "
            f"{session.out_bytes} more, the limit is {user.limits.persistent_bytes}",
            {"limit": "persistent_bytes"},
        )
    free = max(room_if_lanes_shrink(session.device), 0)
    if session.out_bytes > free:
        raise NotPossible(
            f"cannot bring session {session.id} back: it needs {session.out_bytes} bytes, {free} are free"
        )


def limit(state: State, event: events.UserLimits, now: float) -> None:
    """What a user may have from now on. Raises `BadValue`."""
    if not 0.0 < event.weight < float("inf"):
        raise BadValue(f"cannot give user {event.user!r} weight {event.weight}: it must be above 0 and finite")
    if event.max_priority not in CLASSES:
        priority(event.max_priority)
    for name in ("max_sessions", "persistent_bytes", "host_bytes"):
        value = getattr(event, name)
        if value is not None and value < 0:
            raise BadValue(f"cannot limit user {event.user!r} to {name} {value}: it must be 0 or more")
    user = state.user(event.user)
    for device in state.devices.values():
        account = device.accounts.get(user)
        if account is not None and account.weight:
            device.users_weight += event.weight - user.limits.weight
    user.limits = Limits(event.weight, event.max_priority, event.max_sessions, event.persistent_bytes, event.host_bytes)
    for session in user.sessions.values():
        allowed = limits.capped(user, session.priority)
        if allowed != session.priority:
            _set_priority(state, session, allowed, now)
        for part in session.parts:
            state.look[part.device] = None
    state.unsettled[user] = None


def drain(state: State, event: events.DrainAsked) -> Device:
    """A device is maintained from now on, or isn't any more. Raises `UnknownDevice`."""
    device = state.device(event.device)
    device.draining = event.reason if event.draining else None
    device.stale = True
    return device


def policy(state: State, event: events.PolicyChanged, now: float) -> Device:
    """Another policy for a device. Raises `BadValue`."""
    device = state.device(event.device)
    device.policy = policies.make(event.policy, state.config)
    device.stale = True
    for session in list(device.waiting):
        # What isn't starving by the new bound isn't, and the other way round.
        session.starving = False
        state.file(session, now)
        since = session.waiting_since if session.waiting_since is not None else now
        state.deadlines.set(since + device.policy.max_wait_s, Due.STARVING, device, session, session.epoch)
    for holder in device.holders:
        turns.begin_quantum(state, holder, now)
    return device
