"""Coming back elsewhere: among devices of one kind a session that is out, whole, may return to another one.

It goes where it fits without anybody's bytes moving, if fewer sessions want that device than its own, or if its own is
drained. It is looked for when such a session wants a turn or was moved out, and when a device has nothing to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .find import room_if_lanes_shrink
from .gang import cost
from .transitions import Residency, Turn

if TYPE_CHECKING:
    from .device import Device
    from .session import Session
    from .state import State


def seek(state: State, session: Session, now: float) -> None:
    """Take a session that waits in host memory to a better device, if there is one."""
    if not _can_roam(session) or len(state.devices) == 1:
        return
    here = session.device
    best: Device | None = None
    for device in state.devices.values():
        if device is here or device.kind != here.kind or device.draining is not None or not _fits(session, device):
            continue
        if (here.draining is not None or _load(device) < _load(here) - 1) and (
            best is None or _load(device) < _load(best)
        ):
            best = device
    if best is not None:
        _settle(state, session, best, now)


def call(state: State, device: Device, now: float) -> None:
    """A device has nothing to do: the first session goes there that waits in host memory for another one of its kind."""
    for other in state.devices.values():
        if other is device or other.kind != device.kind or not len(other.waiting):
            continue
        for entry in other.waiting.entries[: state.config.scan]:
            session = entry[2]
            if _can_roam(session) and (other.holders or other.draining is not None) and _fits(session, device):
                _settle(state, session, device, now)
                return


def _can_roam(session: Session) -> bool:
    """Whether it waits in host memory and left nothing behind."""
    return (
        session.roams
        and session.residency is Residency.EVICTED
        and session.turn is Turn.WAITING
        and not session.held_bytes
        and bool(session.device.kind)
    )


def _fits(session: Session, device: Device) -> bool:
    return device.moves and cost(session) <= room_if_lanes_shrink(device)


def _load(device: Device) -> int:
    return len(device.waiting) + len(device.holders)


def _settle(state: State, session: Session, device: Device, now: float) -> None:
    """From now on this is the session's device: it comes there like a new one."""
    state.look[session.device] = None
    state.forget(session)
    session.device = device
    session.virtual_s = 0.0
    state.account(session.user, device, now)
    device.policy.arrived(session)
    device.stale = True
    state.file(session, now)
    state.look[device] = None
