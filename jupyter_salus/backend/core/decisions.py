"""What the core wants done, in the imperative. A decision is a request: what came of it returns as an event."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """Base of all decisions."""


@dataclass(frozen=True, slots=True)
class GrantTurn(Decision):
    """Tell the session that it has a turn. `ticket` is the wait that it ends. `side_by_side`: other lanes are open too.

    `lane`: where it runs on its first device; `lanes`: on all of them, in device order, for a session on several.
    """

    session: str
    epoch: int
    ticket: int
    lane: str
    side_by_side: bool = False
    lanes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RevokeTurn(Decision):
    """Ask the session to give its turn back at the next boundary. After `deadline_s` seconds more than asking happens."""

    session: str
    epoch: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class StopTurn(Decision):
    """The session didn't reach a boundary in time: close its gate in mid-iteration (guarded sessions), or say so."""

    session: str
    epoch: int


@dataclass(frozen=True, slots=True)
class CountOut(Decision):
    """The session answered no attempt to stop it: the books took its turn back, and others run. To be told to people."""

    session: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SuspendTurn(Decision):
    """The session waits in mid-iteration for memory that processes outside have: its turn is over in the books, and its
    gate is to be closed. It goes on with its request, and its next `GrantTurn` comes once there may be room."""

    session: str
    epoch: int


@dataclass(frozen=True, slots=True)
class EvictSession(Decision):
    """Move the session's bytes to host memory. Answered by `SessionEvicted` or `EvictionFailed` with this `move`."""

    session: str
    move: int
    reason: str
    device: str = ""


@dataclass(frozen=True, slots=True)
class RestoreSession(Decision):
    """Bring the session's bytes back to `device`; its room is held. Answered by `SessionRestored` or `RestoreFailed`."""

    session: str
    move: int
    device: str = ""


@dataclass(frozen=True, slots=True)
class GrantGrowth(Decision):
    """The session may map what it asked for; the ledger has it already."""

    session: str
    request: int


@dataclass(frozen=True, slots=True)
class RefuseGrowth(Decision):
    """What the session asked for can never be had; `message` says who holds what. Its framework's own error follows."""

    session: str
    request: int
    message: str


@dataclass(frozen=True, slots=True)
class ExplainWait(Decision):
    """The reason of a wait changed; for the line in the notebook and the state."""

    session: str
    ticket: int
