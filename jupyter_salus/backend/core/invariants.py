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
        _accounts(device, here[device])
    for user in state.users.values():
        _user(user, homes[user], left[user])


def _hold(holds: bool, what: str, *about: object) -> None:
    """`about` is put into the text only when it is needed: most of what is looked at is as it should be."""
    if not holds:
        raise AssertionError(what.format(*about))


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
        _hold(len(lane) > 0, "lane {} is empty", lane.id)
        _hold(all(one.lane is lane for one in lane.members), "lane {}: a member elsewhere", lane.id)
        inside = [one for one in lane.members if one.holds]
        expected = [lane.holder] if lane.holder is not None else []
        _hold(inside == expected, "lane {}: {} hold it", lane.id, len(inside))
    for one in holders:
        _hold(one.lane is not None and one.lane.holder is one, "session {} has a turn without a lane", one.id)
        _hold(one.residency is Residency.RESIDENT, "session {} has a turn while {}", one.id, one.residency)
        _hold(one.mapped_bytes <= one.lane_bytes, "session {} uses more than its lane has for it", one.id)
    for one in sessions:
        if one.lane is not None:
            _hold(one.lane.id in device.lanes, "session {} is in a closed lane", one.id)
            _hold(one.residency is Residency.RESIDENT, "session {} is in a lane while {}", one.id, one.residency)
            _hold(one.stopped_bytes == 0, "session {} is stopped and in a lane", one.id)
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
        _hold(one.waiting_since is not None, "session {} waits since never", one.id)
    ready = [one for one in waiting if one.residency is Residency.RESIDENT]
    _hold(set(ready) == set(device.ready), f"{device.id}: the ready ones aren't those in the order")
    absent = [one for one in waiting if one.residency is Residency.ABSENT]
    _hold(set(absent) == set(device.absent), f"{device.id}: the absent ones aren't those in the order")
    keys = [(state.key(one, now)[0], device.waiting.key(one)[0]) for one in waiting]
    _hold(all(now_ == then for now_, then in keys), f"{device.id}: the order doesn't agree with the policy")
    for one in device.idle:
        _hold(one.turn is Turn.NONE and one.residency is Residency.RESIDENT, "session {} isn't idle", one.id)


def _user(user: User, homes: list[Session], gone: list[Session]) -> None:
    _hold(homes == list(user.sessions.values()), f"user {user.name}: sessions differ")
    mine = [one for home in homes for one in home.parts]
    held = sum(one.held_bytes for one in (*mine, *gone))
    _hold(held == user.held_bytes, f"user {user.name}: sessions hold {held}, the books say {user.held_bytes}")
    out = (Residency.EVICTING, Residency.EVICTED, Residency.RESTORING)
    host = sum(one.host_bytes for one in mine)
    _hold(host == user.host_bytes, f"user {user.name}: {host} are in host memory, the books say {user.host_bytes}")
    _hold(all(one.residency in out for one in mine if one.host_bytes), f"user {user.name}: residents in host memory")


def _accounts(device: Device, sessions: list[Session]) -> None:
    active = [one for one in sessions if one.turn is not Turn.NONE and one.broken is None]
    counted = [one for account in device.accounts.values() for one in account.sessions]
    _hold(set(active) == set(counted), "{}: those that want it aren't those that count", device.id)
    wanting = [account for account in device.accounts.values() if account.sessions or account.weight]
    for account in wanting:
        _hold(all(one.user is account.user for one in account.sessions), "{}: a session counts for another", device.id)
        weight = sum(one.weight for one in account.sessions)
        _hold(abs(weight - account.weight) < 1e-6, "user {}: weights on {} differ", account.user.name, device.id)
    users = [account.user.limits.weight for account in wanting]
    _hold(len(users) == device.active_users, "{}: {} users want it", device.id, len(users))
    _hold(abs(sum(users) - device.users_weight) < 1e-6, "{}: weights of users differ", device.id)


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
    _hold((session.id in session.device.moving) >= moving, "session {} moves without a move", session.id)
    if session.growth is not None:
        asks = session.turn in (Turn.BLOCKED, Turn.WAITING)
        _hold(asks, "session {} asks for room while {}", session.id, session.turn)
