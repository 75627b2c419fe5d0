"""The one table of what a session may become. A pair that isn't in it raises `IllegalTransition`; nothing changes.

A session has two states that move apart from each other: its turn (does it use the device?) and its residency (where
are its bytes?). What people see is derived from both by one table as well, in `visible`. The diagram in the
documentation is drawn from `TURNS` and `RESIDENCIES`.
"""

from __future__ import annotations

from enum import Enum

from ...errors import IllegalTransition


class Turn(Enum):
    """What a session has of its device's time."""

    #: It holds no turn and wants none: idle.
    NONE = "none"
    WAITING = "waiting"
    RUNNING = "running"
    #: In its turn, in mid-iteration, waiting for room.
    BLOCKED = "blocked"
    #: Revoked; it gives the turn back at its next boundary.
    YIELDING = "yielding"
    #: It didn't reach a boundary in time and is to be stopped in mid-iteration.
    STOPPING = "stopping"
    #: It answered no attempt to stop it; the books took the turn back, the bytes it holds count as stopped.
    LOST = "lost"


class Residency(Enum):
    """Where a session's persistent bytes are."""

    #: It never entered the device.
    ABSENT = "absent"
    RESIDENT = "resident"
    EVICTING = "evicting"
    EVICTED = "evicted"
    RESTORING = "restoring"
    #: The peer is gone; the device doesn't show its bytes as free yet.
    LEAVING = "leaving"
    CLOSED = "closed"


TURNS: dict[Turn, frozenset[Turn]] = {
    Turn.NONE: frozenset({Turn.WAITING, Turn.RUNNING}),
    Turn.WAITING: frozenset({Turn.NONE, Turn.RUNNING, Turn.BLOCKED}),
    Turn.RUNNING: frozenset({Turn.NONE, Turn.WAITING, Turn.BLOCKED, Turn.YIELDING}),
    Turn.BLOCKED: frozenset({Turn.NONE, Turn.WAITING, Turn.RUNNING}),
    Turn.YIELDING: frozenset({Turn.NONE, Turn.WAITING, Turn.BLOCKED, Turn.STOPPING}),
    Turn.STOPPING: frozenset({Turn.NONE, Turn.WAITING, Turn.BLOCKED, Turn.LOST}),
    Turn.LOST: frozenset({Turn.NONE, Turn.WAITING}),
}

RESIDENCIES: dict[Residency, frozenset[Residency]] = {
    Residency.ABSENT: frozenset({Residency.RESIDENT, Residency.EVICTED, Residency.LEAVING}),
    Residency.RESIDENT: frozenset({Residency.EVICTING, Residency.LEAVING}),
    Residency.EVICTING: frozenset({Residency.EVICTED, Residency.RESIDENT, Residency.LEAVING}),
    Residency.EVICTED: frozenset({Residency.RESTORING, Residency.LEAVING}),
    Residency.RESTORING: frozenset({Residency.RESIDENT, Residency.EVICTED, Residency.LEAVING}),
    Residency.LEAVING: frozenset({Residency.CLOSED}),
    Residency.CLOSED: frozenset(),
}

#: Turns in which a session holds its lane. A tuple: looking in it compares identities, where a set would hash enum members.
HOLDING = (Turn.RUNNING, Turn.BLOCKED, Turn.YIELDING, Turn.STOPPING)

_VISIBLE_TURN = {
    Turn.WAITING: "waiting",
    Turn.RUNNING: "running",
    Turn.BLOCKED: "waiting",
    Turn.YIELDING: "yielding",
    Turn.STOPPING: "yielding",
    Turn.LOST: "yielding",
}

_VISIBLE_RESIDENCY = {
    Residency.ABSENT: "none",
    Residency.RESIDENT: "holding",
    Residency.EVICTING: "evicting",
    Residency.EVICTED: "evicted",
    Residency.RESTORING: "restoring",
    Residency.LEAVING: "leaving",
    Residency.CLOSED: "closed",
}

_MOVING = frozenset({Residency.EVICTING, Residency.RESTORING, Residency.LEAVING, Residency.CLOSED})


def next_turn(session: str, old: Turn, new: Turn) -> Turn:
    """`new`, if the table has a way there. Raises `IllegalTransition`."""
    if new not in TURNS[old]:
        raise IllegalTransition(f"cannot bring the turn of session {session} from {old.value} to {new.value}")
    return new


def next_residency(session: str, old: Residency, new: Residency) -> Residency:
    """`new`, if the table has a way there. Raises `IllegalTransition`."""
    if new not in RESIDENCIES[old]:
        raise IllegalTransition(f"cannot bring session {session} from {old.value} to {new.value}")
    return new


def visible(turn: Turn, residency: Residency, *, broken: bool) -> str:
    """The state that people see, from turn and residency."""
    if residency is Residency.LEAVING or residency is Residency.CLOSED:
        return _VISIBLE_RESIDENCY[residency]
    if broken:
        return "broken"
    if residency in _MOVING or turn is Turn.NONE:
        return _VISIBLE_RESIDENCY[residency]
    return _VISIBLE_TURN[turn]
