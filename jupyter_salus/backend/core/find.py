"""Finding a place: which lane a session enters, and who else leaves a lane for it. No bytes move here.

A session that is to run takes, in this order: the lane where it waits already, if nobody runs in it; an unused lane
that is large enough, the smallest; an unused one that can be widened, again the smallest; a lane of its own. Room that
isn't free comes first from lanes: members at a boundary hold nothing, so lanes without a holder are given up and the
others shrink to what their holder needs (their members are parked: resident in no lane until their next turn). That
is how lanes merge. What is left to want must come from other sessions' bytes, which is `moves`' part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .device import Device
    from .lane import Lane
    from .session import Session


def room_if_lanes_shrink(device: Device) -> int:
    """Free bytes if lanes kept only what their holders need."""
    ledger = device.ledger
    return ledger.free + ledger.lanes - ledger.least


def fits(device: Device, session: Session) -> bool:
    """Whether the session could enter now without anybody's bytes moving."""
    return session.need_bytes - session.carried_bytes + session.entry_bytes <= room_if_lanes_shrink(device)


def shed(device: Device, wanted: int, keep: Lane | None = None) -> bool:
    """Park members until so many bytes are free; False, with nothing but idle memberships lost, if that isn't enough.

    Lanes in which nobody runs go first, whole, oldest last; then members that need more than their lane's holder.
    """
    ledger = device.ledger
    if ledger.free >= wanted:
        return True
    for lane in reversed(list(device.unused.values())):
        if lane is not keep:
            for member in lane.members:
                device.leave_lane(member)
            if ledger.free >= wanted:
                return True
    if ledger.lanes == ledger.least:
        return False
    for lane in list(device.lanes.values()):
        if lane is keep:
            continue
        least = lane.least
        while lane.largest is not None and lane.largest is not lane.holder and lane.size > least:
            device.leave_lane(lane.largest)
            if ledger.free >= wanted:
                return True
    return ledger.free >= wanted


def take_lane(device: Device, session: Session, *, alone: bool = False) -> Lane:
    """Make the session a member of a lane that nobody holds, large enough. The caller saw that it fits, or that the
    device is over its capacity and nobody else can run. `alone`: of one that nobody else is in.

    A session that was stopped in mid-iteration brings its E along.
    """
    need = session.need_bytes
    if session.stopped_bytes:
        device.ledger.observe_stopped(-session.stopped_bytes)
        session.stopped_bytes = 0
    lane = session.lane
    if lane is not None and lane.holder is None:
        if need != session.lane_bytes:
            shed(device, need - lane.size, keep=lane)
            lane.resize(session, need, observed=device.over_capacity)
        return lane
    if lane is not None:
        device.leave_lane(session)
    best = None if alone else _unused(device, need)
    if best is None:
        shed(device, need)
        best = device.new_lane()
    elif best.size < need:
        shed(device, need - best.size, keep=best)
    best.add(session, need, observed=device.over_capacity)
    return best


def _unused(device: Device, need: int) -> Lane | None:
    """The smallest lane without a holder that is large enough, else the smallest without a holder."""
    best: Lane | None = None
    for lane in device.unused.values():
        if best is None:
            best = lane
            continue
        better = (lane.size < need, lane.size, len(lane)) < (best.size < need, best.size, len(best))
        if better:
            best = lane
    return best


def join(device: Device, session: Session) -> None:
    """Let a resident session that waits stand in the smallest lane that is large enough, then the one with the fewest
    members, then the oldest. It stays parked if there is none: it finds its lane when its turn comes."""
    if session.lane is not None or session.stopped_bytes:
        return
    need = session.need_bytes
    best: Lane | None = None
    for lane in device.lanes.values():
        if lane.size >= need and (best is None or (lane.size, len(lane)) < (best.size, len(best))):
            best = lane
    if best is not None:
        best.add(session, need)
