"""The snapshot: what people may see of the scheduler, as frozen rows. Times are the core's own (monotonic seconds)."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING

from .drain import is_empty
from .reasons import Reason, held_bytes, reason_of
from .transitions import Residency, Turn, visible

if TYPE_CHECKING:
    from .device import Device
    from .lane import Lane
    from .session import Session
    from .state import State
    from .user import User

_NOT_HERE = (Residency.EVICTING, Residency.EVICTED, Residency.RESTORING)
_ON_DEVICE = frozenset({Residency.RESIDENT, Residency.EVICTING, Residency.RESTORING})


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device. `free_bytes` is never below 0; `lanes_reason` says why so many lanes are open."""

    id: str
    policy: str
    capacity_bytes: int
    foreign_bytes: int
    reserve_bytes: int
    free_bytes: int
    lanes_open: int
    lanes_reason: str
    over_capacity: bool
    #: Why it is drained, maybe ""; None: it isn't. Nobody has bytes or a turn there.
    draining: str | None = None
    empty: bool = True


@dataclass(frozen=True, slots=True)
class LaneRow:
    """One lane: who has it, who waits in it, in order, and who is in it."""

    id: str
    device: str
    ephemeral_bytes: int
    holder: str | None
    waiting: tuple[str, ...]
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session. `position` is 1 for the next one; `turn` and `residency` are the table's names."""

    id: str
    user: str
    device: str
    lane: str | None
    state: str
    turn: str
    residency: str
    priority: str
    pinned: bool
    persistent_bytes: int
    ephemeral_bytes: int
    position: int | None
    reason: Reason | None
    sharing_with: tuple[str, ...]
    waiting_since: float | None
    waited_s: float
    used_s: float
    iterations: int
    turns: int
    evictions: int
    peak_persistent_bytes: int
    peak_ephemeral_bytes: int
    iteration_s: float | None
    device_share: float | None
    host_bound: bool | None
    background: bool
    broken: str | None
    #: All its devices; bytes are those on all of them, its state that on the one that it waits for longest.
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserRow:
    """One user: what they may have (None: as much as there is), and what their open sessions have.

    `persistent_bytes` are those on devices, leaving sessions' among them; `host_bytes` those in host memory.
    """

    user: str
    weight: float
    max_priority: str
    max_sessions: int | None
    persistent_limit_bytes: int | None
    host_limit_bytes: int | None
    sessions: int
    persistent_bytes: int
    host_bytes: int
    used_s: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything, at one time."""

    devices: tuple[DeviceRow, ...]
    lanes: tuple[LaneRow, ...]
    sessions: tuple[SessionRow, ...]
    users: tuple[UserRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Places:
    """Who is where, and nothing else: what is cheap enough to be read after every event."""

    #: (lane, device, bytes).
    lanes: tuple[tuple[str, str, int], ...]
    #: (session, its lane or None, whether its bytes are on the device or have their room there, the device), one for each of
    #: its devices.
    sessions: tuple[tuple[str, str | None, bool, str], ...]


def places(state: State) -> Places:
    """The places of now. Reads only."""
    return Places(
        tuple((lane.id, device.id, lane.size) for device in state.devices.values() for lane in device.lanes.values()),
        tuple(
            (part.id, None if part.lane is None else part.lane.id, part.residency in _ON_DEVICE, part.device.id)
            for session in state.sessions.values()
            for part in session.parts
        ),
    )


def take(state: State, now: float) -> Snapshot:
    """The snapshot of now. Reads only."""
    lanes = [lane for device in state.devices.values() for lane in device.lanes.values()]
    positions: dict[Session, int] = {}
    orders: dict[Lane, list[str]] = {lane: [] for lane in lanes}
    for device in state.devices.values():
        for position, session in enumerate(device.waiting, 1):
            positions[session] = position
            if session.lane is not None:
                orders[session.lane].append(session.id)
    gone = [session for sessions in state.leaving.values() for session in sessions if session.id not in state.sessions]
    most = _most(state)
    sharers = {lane: [one for one in lane.members if _shares(one, now, state.config.sharing_s)] for lane in lanes}
    rows = [_session(session, positions, most, sharers, now) for session in (*state.sessions.values(), *gone)]
    return Snapshot(
        tuple(_device(device, now) for device in state.devices.values()),
        tuple(_lane(lane, tuple(orders[lane])) for lane in lanes),
        tuple(rows),
        tuple(_user(user, now) for user in state.users.values()),
    )


def _most(state: State) -> dict[Device, list[Session]]:
    """The four sessions of each device that hold most of it."""
    holding: dict[Device, list[Session]] = {device: [] for device in state.devices.values()}
    for session in state.sessions.values():
        for part in session.parts:
            if held_bytes(part) > 0:
                holding[part.device].append(part)
    return {device: nlargest(4, sessions, key=held_bytes) for device, sessions in holding.items()}


def _device(device: Device, now: float) -> DeviceRow:
    ledger = device.ledger
    return DeviceRow(
        id=device.id,
        policy=device.policy.name,
        capacity_bytes=ledger.capacity,
        foreign_bytes=ledger.foreign,
        reserve_bytes=ledger.reserve,
        free_bytes=max(ledger.free, 0),
        lanes_open=len(device.holders),
        lanes_reason=_lanes_reason(device, now),
        over_capacity=ledger.free < 0,
        draining=device.draining,
        empty=is_empty(device),
    )


def _lanes_reason(device: Device, now: float) -> str:
    if device.draining is not None:
        return "the device is being drained"
    if not device.side_by_side:
        return "one at a time on this device"
    if len(device.holders) > 1:
        count = len(device.holders)
        total = device.pace.total(count, sum(device.pace.share(holder) for holder in device.holders), now)
        return f"{count} run side by side, together {total:.2f} times as fast as taking turns"
    if not len(device.waiting):
        return "nobody else wants the device"
    if device.holders and device.holders[0].alone_s is None:
        return "one runs alone until its iterations are known"
    return "running side by side wouldn't pay, or there isn't room for it"


def _lane(lane: Lane, waiting: tuple[str, ...]) -> LaneRow:
    holder = lane.holder.id if lane.holder is not None else None
    members = tuple(member.id for member in lane.members)
    return LaneRow(lane.id, lane.device, lane.size, holder, waiting, members)


def _user(user: User, now: float) -> UserRow:
    limits = user.limits
    return UserRow(
        user=user.name,
        weight=limits.weight,
        max_priority=limits.max_priority,
        max_sessions=limits.max_sessions,
        persistent_limit_bytes=limits.persistent_bytes,
        host_limit_bytes=limits.host_bytes,
        sessions=len(user.sessions),
        persistent_bytes=user.held_bytes,
        host_bytes=user.host_bytes,
        used_s=sum(_used_s(session, now) for session in user.sessions.values()),
    )


def _slowest(session: Session, positions: dict[Session, int]) -> Session:
    """The part of a session on several devices that tells what it waits for: the one furthest from a turn."""
    if not session.gang:
        return session
    return max(
        session.gang,
        key=lambda one: (
            one.residency in _NOT_HERE,
            one.turn is Turn.BLOCKED,
            not one.placed and bool(one.device.holders),
            positions.get(one, 0),
        ),
    )


def _used_s(session: Session, now: float) -> float:
    uses = session.holds or session.turn is Turn.LOST
    return session.used_s + (max(now - session.charged_at, 0.0) if uses else 0.0)


def _session(
    session: Session,
    positions: dict[Session, int],
    most: dict[Device, list[Session]],
    sharers: dict[Lane, list[Session]],
    now: float,
) -> SessionRow:
    session, home = _slowest(session, positions), session
    lane = session.lane
    sharing: tuple[str, ...] = ()
    shown = visible(session.turn, session.residency, broken=session.broken is not None)
    together = sharers.get(lane, []) if lane is not None else []
    if session in together:
        sharing = tuple(other.id for other in together if other is not session)
        if sharing and session.turn is Turn.WAITING:
            shown = "running"
    waited = session.waited_s + (now - session.waiting_since if session.waiting_since is not None else 0.0)
    return SessionRow(
        id=session.id,
        user=session.user.name,
        device=home.device.id,
        lane=lane.id if lane is not None else None,
        state=shown,
        turn=session.turn.value,
        residency=session.residency.value,
        priority=session.priority,
        pinned=session.pinned,
        persistent_bytes=sum(part.persistent_bytes for part in home.parts),
        ephemeral_bytes=sum(part.ephemeral_bytes for part in home.parts),
        position=positions.get(session),
        reason=reason_of(session, most[session.device], now),
        sharing_with=sharing,
        waiting_since=session.waiting_since,
        waited_s=waited,
        used_s=_used_s(home, now),
        iterations=session.iterations,
        turns=session.turns,
        evictions=sum(part.evictions for part in home.parts),
        peak_persistent_bytes=sum(max(part.peak_persistent_bytes, part.held_bytes) for part in home.parts),
        peak_ephemeral_bytes=sum(part.peak_ephemeral_bytes for part in home.parts),
        iteration_s=home.alone_s,
        device_share=home.share,
        host_bound=session.host_bound,
        background=session.background,
        broken=session.broken,
        devices=tuple(part.device.id for part in home.parts),
    )


def _shares(session: Session, now: float, window_s: float) -> bool:
    """Whether it takes turns in its lane now: it has the turn, or had it a moment ago and wants it again."""
    if session.turn is not Turn.WAITING:
        return session.holds
    return session.ran_at is not None and now - session.ran_at <= window_s
