"""What holds after every event, recomputed from sessions and lanes: a failure is a bug of the scheduler.

The daemon checks after each event in debug mode, the tests always. It looks at everything, so it is slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .transitions import Residency, Turn

if TYPE_CHECKING:
    from .device import Device
    from .session import Session
    from .state import State
    from .user import User


def check(state: State, now: float) -> None:
    """Raise `AssertionError` naming the first thing that doesn't hold."""
    here: dict[Device, list[Session]] = {device: [] for device in state.devices.values()}
    gone: dict[Device, list[Session]] = {device: [] for device in state.devices.values()}
    homes: dict[User, list[Session]] = {user: [] for user in state.users.values()}
    left: dict[User, list[Session]] = {user: [] for user in state.users.values()}
    for session in state.sessions.values():
        homes[session.user].append(session)
        for part in session.parts:
            here[part.device].append(part)
            _session(part)
        if session.gang:
            _gang(session)
    for leaving in state.leaving.values():
        for session in leaving:
            for part in session.parts:
                gone[part.device].append(part)
                left[part.user].append(part)
    for device in state.devices.values():
        _bytes(device, [*here[device], *gone[device]])
        _lanes(device, here[device])
        _orders(state, device, here[device], now)
    for user in state.users.values():
        _user(state, user, homes[user], left[user])


def _hold(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def _bytes(device: Device, sessions: list[Session]) -> None:
    ledger = device.ledger
    held = sum(one.held_bytes for one in sessions)
    lanes = sum(max((one.lane_bytes for one in lane.members), default=0) for lane in device.lanes.values())
    stopped = sum(one.stopped_bytes for one in sessions)
    _hold(held == ledger.held, f"{device.id}: sessions hold {held}, the ledger says {ledger.held}")
    _hold(lanes == ledger.lanes, f"{device.id}: lanes are {lanes}, the ledger says {ledger.lanes}")
    _hold(stopped == ledger.stopped, f"{device.id}: stopped are {stopped}, the ledger says {ledger.stopped}")
    _hold(
        ledger.given <= max(ledger.limit, ledger.overdrawn_to),
        f"{device.id}: {ledger.given} given out of {ledger.limit}",
    )
    _hold(all(one.held_bytes >= 0 for one in sessions), f"{device.id}: a session holds less than nothing")
    fixed = sum(one.held_bytes for one in sessions if not one.evictable or one.residency is Residency.EVICTED)
    _hold(fixed == device.fixed_bytes, f"{device.id}: {fixed} can't be moved, the device says {device.fixed_bytes}")
    going = sum(one.held_bytes for one in sessions if one.residency is Residency.EVICTING or one.going)
    _hold(
        going == device.going_bytes, f"{device.id}: {going} are on their way out, the device says {device.going_bytes}"
    )


def _lanes(device: Device, sessions: list[Session]) -> None:
    holders = [one for one in sessions if one.holds]
    _hold(set(holders) == set(device.holders), f"{device.id}: holders differ")
    _hold(len(device.holders) == len(set(device.holders)), f"{device.id}: a holder twice")
    for lane in device.lanes.values():
        _hold(len(lane) > 0, f"lane {lane.id} is empty")
        _hold(all(one.lane is lane for one in lane.members), f"lane {lane.id}: a member elsewhere")
        inside = [one for one in lane.members if one.holds]
        _hold(inside == ([lane.holder] if lane.holder is not None else []), f"lane {lane.id}: holders {inside}")
    for one in sessions:
        if one.holds:
            _hold(one.lane is not None and one.lane.holder is one, f"session {one.id} has a turn without a lane")
            _hold(one.residency is Residency.RESIDENT, f"session {one.id} has a turn while {one.residency.value}")
        if one.lane is not None:
            _hold(one.lane.id in device.lanes, f"session {one.id} is in a closed lane")
            _hold(one.residency is Residency.RESIDENT, f"session {one.id} is in a lane while {one.residency.value}")
            _hold(one.stopped_bytes == 0, f"session {one.id} is stopped and in a lane")
            if one.holds:
                _hold(one.mapped_bytes <= one.lane_bytes, f"session {one.id} uses more than its lane has for it")
    if device.draining is not None:
        _hold(
            all(one.turn is not Turn.RUNNING for one in device.holders),
            f"{device.id}: a turn goes on while it is drained",
        )
    if not device.side_by_side:
        given = [one for one in device.holders if not one.resumed]
        _hold(len(given) <= 1, f"{device.id}: {len(given)} were let run where one may")


def _orders(state: State, device: Device, sessions: list[Session], now: float) -> None:
    waiting = [one for one in sessions if one.turn is Turn.WAITING and one.broken is None]
    _hold(set(waiting) == set(device.waiting), f"{device.id}: those that wait aren't those in the order")
    for one in waiting:
        _hold(one.waiting_since is not None, f"session {one.id} waits since never")
    ready = [one for one in waiting if one.residency is Residency.RESIDENT]
    _hold(set(ready) == set(device.ready), f"{device.id}: the ready ones aren't those in the order")
    absent = [one for one in waiting if one.residency is Residency.ABSENT]
    _hold(set(absent) == set(device.absent), f"{device.id}: the absent ones aren't those in the order")
    keys = [(state.key(one, now)[0], device.waiting.key(one)[0]) for one in waiting]
    _hold(all(now_ == then for now_, then in keys), f"{device.id}: the order doesn't agree with the policy")
    for one in device.idle:
        _hold(one.turn is Turn.NONE and one.residency is Residency.RESIDENT, f"session {one.id} isn't idle")


def _user(state: State, user: User, homes: list[Session], gone: list[Session]) -> None:
    _hold(homes == list(user.sessions.values()), f"user {user.name}: sessions differ")
    mine = [one for home in homes for one in home.parts]
    held = sum(one.held_bytes for one in (*mine, *gone))
    _hold(held == user.held_bytes, f"user {user.name}: sessions hold {held}, the books say {user.held_bytes}")
    out = (Residency.EVICTING, Residency.EVICTED, Residency.RESTORING)
    host = sum(one.host_bytes for one in mine)
    _hold(host == user.host_bytes, f"user {user.name}: {host} are in host memory, the books say {user.host_bytes}")
    _hold(all(one.residency in out for one in mine if one.host_bytes), f"user {user.name}: residents in host memory")
    for device in state.devices.values():
        active = [one for one in mine if one.device is device and one.turn is not Turn.NONE and one.broken is None]
        account = device.accounts.get(user)
        counted = list(account.sessions) if account is not None else []
        _hold(set(active) == set(counted), f"user {user.name}: those that want {device.id} aren't those that count")
        weight = sum(one.weight for one in active)
        _hold(
            abs(weight - (account.weight if account is not None else 0.0)) < 1e-6,
            f"user {user.name}: weights on {device.id} differ",
        )


def _gang(session: Session) -> None:
    parts = session.gang
    _hold(len({one.epoch for one in parts}) == 1, f"session {session.id}: epochs of its devices differ")
    _hold(len({one.ticket for one in parts}) == 1, f"session {session.id}: tickets of its devices differ")
    held = [one.holds for one in parts]
    _hold(all(held) or not any(held), f"session {session.id} has a turn on some of its devices only")
    claims = [one.claims for one in parts]
    _hold(all(claims) or not any(claims), f"session {session.id} claims some of its devices only")
    for one in parts:
        _hold(
            (one.device.claim is session) is one.claims, f"session {session.id}: the claim of {one.device.id} differs"
        )
        _hold(one.turn is Turn.WAITING or not one.claims, f"session {session.id} claims while {one.turn.value}")


def _session(session: Session) -> None:
    moving = session.residency in (Residency.EVICTING, Residency.RESTORING)
    _hold((session.id in session.device.moving) >= moving, f"session {session.id} moves without a move")
    if session.growth is not None:
        _hold(
            session.turn in (Turn.BLOCKED, Turn.WAITING),
            f"session {session.id} asks for room while {session.turn.value}",
        )
