"""Memory that was measured: P and E as the device shows them, whether or not there was room.

What is measured is booked as it is; if that overdraws the ledger, memberships are given up first, and if it is still
overdrawn the session that grew comes after all others until there is room again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .find import shed
from .transitions import Residency, Turn

if TYPE_CHECKING:
    from .session import Session
    from .state import State


def measured(state: State, session: Session, persistent: int | None, ephemeral: int | None, now: float) -> None:
    """Take in P and E; None: not measured this time. P of a session that is out or on its way is what stayed behind."""
    grew = False
    if persistent is not None and session.residency in (Residency.RESIDENT, Residency.ABSENT):
        more = persistent - session.held_bytes
        if more > 0:
            # What was asked for as E turns out to stay.
            session.window_peak = max(session.window_peak - more, 0)
            session.window_before = max(session.window_before - more, 0)
            session.mapped_bytes = max(session.mapped_bytes - more, 0)
            session.ephemeral_bytes = max(session.window_peak, session.window_before)
            grew = True
    if ephemeral is not None:
        grew = grew or ephemeral > session.ephemeral_bytes
        session.learn_ephemeral(ephemeral, now, state.config.memory_window_s)
        if session.turn is Turn.WAITING and session.residency is Residency.RESIDENT:
            _unmapped(session, ephemeral)
    _fit_lane(session)
    if persistent is not None and session.residency in (Residency.RESIDENT, Residency.ABSENT):
        state.observe(session, persistent - session.held_bytes)
        session.persistent_bytes = persistent
        session.peak_persistent_bytes = max(session.peak_persistent_bytes, persistent)
    device = session.device
    if device.ledger.free < 0:
        shed(device, 0)
        if device.ledger.free < 0 and grew and not session.overgrown:
            session.overgrown = True
            device.overgrown.append(session)
    state.file(session, now)


def _unmapped(session: Session, ephemeral: int) -> None:
    """A session that was stopped while it waited for room holds less than it was granted: the rest it asks for again."""
    less = session.stopped_bytes - ephemeral
    if less <= 0:
        return
    session.stopped_bytes = session.mapped_bytes = ephemeral
    session.device.ledger.observe_stopped(-less)
    if session.growth is not None:
        session.growth.extra_bytes += less


def _fit_lane(session: Session) -> None:
    """Bring its lane to its E: a holder has what it has, another member leaves if there is no room."""
    lane, device = session.lane, session.device
    if lane is None:
        return
    need = session.need_bytes
    if session.holds:
        lane.resize(session, need, observed=True)
        device.recount(session)
    elif need - lane.size <= device.ledger.free:
        lane.resize(session, need)
    else:
        device.leave_lane(session)
