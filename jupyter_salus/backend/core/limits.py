"""What a user may have at most, kept: P on devices, host memory, sessions, priorities.

A session that would bring its user's P over the limit enters once others of the same user made way: idle ones go out
first, then waiting ones that come after it. P that was measured (nobody asked for it) may be over: then the user's idle
sessions go out, and while that isn't enough the user's sessions come after everybody else's, and get no more memory. A
limit that sinks ends nothing that runs, and nobody else's session ever goes out because of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import OverLimit
from . import moves
from .session import CLASSES
from .transitions import Residency, Turn

if TYPE_CHECKING:
    from .session import Session
    from .state import State
    from .user import User


def check_seat(user: User, id: str) -> None:
    """Raises `OverLimit` if the user may not open one more session, unless a seat is kept for this one."""
    most = user.limits.max_sessions
    if most is None or id in user.seats:
        return
    taken = len(user.sessions) + len(user.seats)
    if taken >= most:
        kept = f", {len(user.seats)} of them kept for kernels that restart" if user.seats else ""
        raise OverLimit(
            f"cannot open session {id!r}: {user.name} has {taken} sessions{kept}, the limit is {most}",
            {"limit": "max_sessions"},
        )


def check_priority(user: User, id: str, priority: str) -> None:
    """Raises `OverLimit` if the user's sessions may not have this priority."""
    if capped(user, priority) != priority:
        raise OverLimit(
            f"cannot give session {id} priority {priority}: the highest for {user.name} is {user.limits.max_priority}",
            {"limit": "max_priority"},
        )


def capped(user: User, priority: str) -> str:
    """The priority, or the highest that the user's sessions may have."""
    return max(priority, user.limits.max_priority, key=CLASSES.__getitem__)


def may_enter(session: Session) -> bool:
    """Whether the session's P may be on the device as far as its user is concerned.

    One that is alone there may in any case: what it has is lost to its user otherwise.
    """
    user = session.user
    most = user.limits.persistent_bytes
    if most is None or user.held_bytes + session.entry_bytes <= most:
        return True
    return not session.entry_bytes or user.held_bytes <= session.held_bytes


def make_way(state: State, session: Session, now: float) -> list[Session] | None:
    """None: the session may enter as far as its user is concerned. If not, others of the user's go out for it; the answer
    is those among them that have a turn on its device, which has to end first."""
    if may_enter(session):
        return None
    ending: list[Session] = []
    most = session.user.limits.persistent_bytes
    assert most is not None, "there is a limit that keeps it out"
    short = session.user.held_bytes + session.entry_bytes - most - _going(session.user)
    place = (state.key(session, now), session.number)
    later = [
        one
        for one in _parts(session.user)
        if one is not session and (one.turn is Turn.WAITING or one.turn is Turn.RUNNING)
        if one.device is session.device and (state.key(one, now), one.number) > place
    ]
    later.sort(key=lambda one: (state.key(one, now), one.number), reverse=True)
    for victim in (*_idle(session.user), *later):
        if short <= 0:
            break
        if not _can_go(state, victim, now):
            continue
        if victim.turn is not Turn.NONE and victim.stays_until > now and not session.starving:
            state.look_again(session.device, victim.stays_until, now)
            continue
        short -= victim.held_bytes + victim.stopped_bytes
        if victim.holds:
            ending.append(victim)
        else:
            moves.evict(state, victim, f"room in {session.user.name}'s limit for {session.id}", now)
    return ending


def settle(state: State, user: User, now: float) -> None:
    """The user's bytes on devices changed, or the limit did."""
    most = user.limits.persistent_bytes
    over = most is not None and user.held_bytes > most
    if over:
        assert most is not None, "there is a limit to be over"
        short = user.held_bytes - most - _going(user)
        for victim in _idle(user):
            if short > 0 and _can_go(state, victim, now):
                short -= victim.held_bytes + victim.stopped_bytes
                moves.evict(state, victim, f"over {user.name}'s limit", now)
    if over is not user.over:
        user.over = over
        for session in _parts(user):
            if session.turn is Turn.WAITING:
                state.file(session, now)
            session.device.stale = True
            state.look[session.device] = None


def _parts(user: User) -> list[Session]:
    return [part for session in user.sessions.values() for part in session.parts]


def _can_go(state: State, session: Session, now: float) -> bool:
    return session.device.moves and state.can_go(session, now)


def _going(user: User) -> int:
    """Bytes of the user's that are on their way out."""
    return sum(one.held_bytes for one in _parts(user) if one.residency is Residency.EVICTING)


def _idle(user: User) -> list[Session]:
    """The user's sessions that want nothing, unpinned ones first, the largest first: the fewest moves."""
    idle = [one for one in _parts(user) if one.turn is Turn.NONE and one.broken is None]
    return sorted(idle, key=lambda one: (one.pinned, -one.held_bytes, one.number))
