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
    session.priority = value
    session.weight = state.weights[value]
    session.device.stale = True
    state.file(session, now)


def pin(state: State, event: events.PinChanged, now: float) -> Device:
    """A pinned session is evicted last."""
    session = state.session(event.session)
    session.pinned = event.pinned
    state.file(session, now)
    return session.device


def pass_on(state: State, event: events.YieldAsked, now: float) -> Device:
    """Raises `NotPossible` if the session has no turn to pass on."""
    session = state.session(event.session)
    if session.turn is not Turn.RUNNING:
        raise NotPossible(f"cannot let session {session.id} pass its turn on: it has none ({session.turn.value})")
    session.yielded = True
    turns.revoke(state, session, now)
    return session.device


def evict(state: State, event: events.EvictAsked, now: float) -> Device:
    """Raises `NotPossible`, and `OverLimit` if the user's host memory is used up."""
    session = state.session(event.session)
    device = session.device
    if not device.moves or not session.evictable:
        raise NotPossible(f"cannot move session {session.id} out: device {device.id} can't move it")
    if session.residency is not Residency.RESIDENT:
        raise NotPossible(f"cannot move session {session.id} out: it is {session.residency.value}")
    if state.host_room(session) < 0:
        user = session.user
        raise OverLimit(
            f"cannot move session {session.id} out: {user.name} has {user.host_bytes} bytes in host memory, it would be "
            f"{session.held_bytes + session.stopped_bytes} more, the limit is {user.limits.host_bytes}",
            {"limit": "host_bytes"},
        )
    if session.turn in (Turn.NONE, Turn.WAITING):
        moves.evict(state, session, "asked for", now)
    else:
        session.evict_asked = True
        if session.turn is Turn.RUNNING:
            turns.revoke(state, session, now)
    return device


def restore(state: State, event: events.RestoreAsked, now: float) -> Device:
    """Raises `NotPossible`, and `OverLimit` if its user has too much on devices already."""
    session = state.session(event.session)
    if session.residency is not Residency.EVICTED:
        raise NotPossible(f"cannot bring session {session.id} back: it is {session.residency.value}")
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
    shed(session.device, session.out_bytes)
    moves.restore(state, session, now)
    return session.device


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
        state.look[session.device] = None
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
