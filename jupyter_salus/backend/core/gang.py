"""Sessions that need turns on several devices: all at once, in device order, and none while they wait.

Such a session is a *gang* of parts, one on each of its devices, the first of them its *home*. Each part has its own place
in its device's order, its own bytes, lane and moves; the turn, its epoch and its ticket are one.

A part that waits alone takes nobody's turn; only its memory comes back by its place in the order. Once the home part's
turn has come, and on each other device nobody but other gangs is before it, and it would fit everywhere if the lanes were
empty, the gang *claims* its devices, all of them or none, and no device can be claimed twice, so gangs never wait for one
another in a circle. On a claimed device the part comes before everybody but the starving, ends turns at the next boundary,
and its place is kept; when the last place is free all parts get the turn in one step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .transitions import Residency, Turn

if TYPE_CHECKING:
    from .session import Session
    from .state import State

_HERE = (Residency.RESIDENT, Residency.ABSENT)


def stands(state: State, part: Session, now: float) -> bool:
    """Whether a part that waits is to be looked at by its device's plan: for its turn, or to bring its memory back."""
    if part.claims and not all(_could_run(one) for one in part.gang):
        unclaim(state, part, now)
    if part.claims or part is part.gang[0] or part.residency not in _HERE:
        return True
    if _is_next(state, part, now):
        # What its home waited for may be over.
        state.look[part.gang[0].device] = None
    return False


def takes_turn(session: Session) -> bool:
    """Whether it is a gang's part that waits for nothing but its turn."""
    return bool(session.gang) and not session.holds and session.residency in _HERE


def claim(state: State, part: Session, now: float) -> bool:
    """The home part's turn has come: claim all devices, if that can be."""
    for one in part.gang:
        device = one.device
        if device.claim is not None or not _could_run(one) or (one is not part and not _is_next(state, one, now)):
            return False
    for one in part.gang:
        one.device.claim = part.gang[0]
        one.claims = True
        one.placed = False
        state.file(one, now)
        if one is not part:
            state.look[one.device] = None
    return True


def unclaim(state: State, part: Session, now: float) -> None:
    """Leave the devices to others; nothing happens without a claim."""
    if not part.claims:
        return
    for one in part.gang:
        one.claims = one.placed = False
        one.device.claim = None
        one.device.stale = True
        if one.turn is Turn.WAITING:
            state.file(one, now)
        state.look[one.device] = None


def _could_run(part: Session) -> bool:
    """Whether the part would fit if nobody had a lane, as things are."""
    device = part.device
    if part.turn is not Turn.WAITING or part.residency not in _HERE or device.draining is not None or part.outside:
        return False
    return cost(part) <= device.ledger.limit - device.ledger.held - device.ledger.stopped


def _is_next(state: State, part: Session, now: float) -> bool:
    """Whether nobody but other gangs comes before it on its device. Where turns never end for others, those don't count."""
    policy = part.device.policy
    if policy.preempts or policy.rotates_s(part) is not None:
        key = state.key(part, now)
        if any(state.key(holder, now) < key for holder in part.device.holders):
            return False
    for entry in part.device.waiting.entries:
        if entry[2] is part:
            return True
        if not entry[2].gang:
            return False
    return False


def cost(session: Session) -> int:
    """What the session needs beyond what the ledger has of it outside lanes."""
    if session.holds:
        return session.lane_bytes
    return session.need_bytes - session.carried_bytes + session.entry_bytes
