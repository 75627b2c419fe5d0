"""A drained device: everybody gives their turn back and what can be moved goes out, so that it can be maintained.

Kernels still open sessions on it, and wait. What is in mid-iteration still gets the memory that it needs to come to a
boundary; no other turn is given, not even to one that waits beyond the bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import growth, moves, roaming, turns
from .gang import unclaim
from .transitions import Turn

if TYPE_CHECKING:
    from .device import Device
    from .state import State


def advance(state: State, device: Device, now: float) -> None:
    """Ask for turns and moves that weren't asked for yet."""
    if device.claim is not None:
        unclaim(state, device.claim, now)
    for holder in list(device.holders):
        if holder.turn is Turn.RUNNING:
            turns.revoke(state, holder, now)
    for session in list(device.waiting):
        roaming.seek(state, session, now)
    if device.moves:
        for session in (*device.idle, *device.ready):
            if state.can_go(session, now):
                moves.evict(state, session, f"device {device.id} is drained", now)
    if device.blocked:
        growth.serve(state, device, now)
        growth.resolve_deadlock(state, device, now)
    for holder in device.holders:
        if holder.turn is Turn.RUNNING:
            turns.revoke(state, holder, now)


def is_empty(device: Device) -> bool:
    """Nobody has a turn or bytes there."""
    return not (device.holders or device.ledger.held or device.ledger.stopped)
