"""The messages of any peer and of guests: a kernel's guest needs no others, and making the class of one takes its time."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from .codec import Message, message

# ---- any peer ---------------------------------------------------------------------------------------------------------


@message("hello")
class Hello(Message):
    """A peer's first message. `role`: guest, guard, server or client. `protocol`: first and last version spoken.

    A guest names its session, the token that its server announced (spent by the first hello of an incarnation; on a
    reconnection the `key` from the welcome stands for it), and, if it had a turn when the backend went, `holding`.
    `touched`: it has had a turn since its kernel started. `guarded`: the guard is loaded in its process. A guard
    says whether its gate is `open` or `shut`, the `epoch` that this goes back to, and what it holds, in the fields
    of `memory`.
    """

    role: str
    protocol: Tuple[int, ...]
    version: str
    pid: Optional[int] = None
    session: Optional[str] = None
    token: Optional[str] = None
    key: Optional[str] = None
    incarnation: Optional[int] = None
    kernel_id: Optional[str] = None
    name: Optional[str] = None
    path: Optional[str] = None
    priority: Optional[str] = None
    holding: Optional[bool] = None
    waiting: Optional[bool] = None
    touched: Optional[bool] = None
    persistent_bytes: Optional[int] = None
    guarded: Optional[bool] = None
    gate: Optional[str] = None
    epoch: Optional[int] = None
    evicted_bytes: Optional[int] = None
    fixed_bytes: Optional[int] = None
    reason: Optional[str] = None


@message("welcome")
class Welcome(Message):
    """The backend took the hello; `protocol` is the version to speak from here on. `key` lets a guest come back."""

    protocol: int
    version: str
    pid: int
    key: Optional[str] = None
    memory_mode: Optional[str] = None


@message("failed")
class Failed(Message):
    """A hello, request or message was refused: `request` says which one, if it had a number."""

    code: str
    message: str
    request: Optional[int] = None
    detail: Optional[Dict[str, Any]] = None


@message("ping")
class Ping(Message):
    """Is anybody there? Any answer will do: whoever waits says it every few seconds, and goes on without the backend
    when nothing comes for long."""


@message("pong")
class Pong(Message):
    """The answer to a `ping`."""


# ---- guest to backend -------------------------------------------------------------------------------------------------


@message("cell_started")
class CellStarted(Message):
    """A cell began; `cell` is the guest's own number of it, growing. It has no turn by that."""

    cell: int
    cell_id: Optional[str] = None


@message("cell_finished")
class CellFinished(Message):
    """A cell ended, by whatever way."""

    cell: int


@message("turn_wanted")
class TurnWanted(Message):
    """A thread of the session touched the device without a turn and waits. `background`: no cell is open."""

    ticket: int
    background: bool = False
    silent: bool = False


@message("turn_withdrawn")
class TurnWithdrawn(Message):
    """The wait under this ticket ended without a turn: interrupted."""

    ticket: int


@message("turn_released")
class TurnReleased(Message):
    """The session gives its turn back. `wants_more`: it was revoked in the middle of work and asks again at once
    under `ticket`, so that nothing comes between. `iterations`, `busy_s` and `remaining` as in `progress`, since the last
    one: said in the same breath, for whoever waits."""

    epoch: int
    wants_more: bool = False
    ticket: Optional[int] = None
    resident_bytes: Optional[int] = None
    iterations: Optional[int] = None
    busy_s: Optional[float] = None
    remaining: Optional[int] = None


@message("progress")
class Progress(Message):
    """What happened since the last one, said at boundaries at most ten times a second.

    `iterations` done, `busy_s` seconds they took, `resident_bytes` of the process at the boundary (P on the host
    device), `peak_bytes` the highest between boundaries where the guest knows it, `remaining` iterations still to come
    where a framework tells, `cpu_s` CPU seconds used (host-bound or not), `frameworks` seen.
    """

    epoch: int
    iterations: int
    busy_s: float
    resident_bytes: Optional[int] = None
    peak_bytes: Optional[int] = None
    remaining: Optional[int] = None
    cpu_s: Optional[float] = None
    frameworks: Optional[Tuple[str, ...]] = None


# ---- backend to guest -------------------------------------------------------------------------------------------------


@message("turn_granted")
class TurnGranted(Message):
    """The session has a turn. `ticket` is the wait that it ends."""

    epoch: int
    ticket: int


@message("turn_revoked")
class TurnRevoked(Message):
    """Give the turn back at the next boundary. `deadline` is when more than asking happens."""

    epoch: int
    deadline: float


@message("wait_explained")
class WaitExplained(Message):
    """Why the session waits, for the line in the notebook: sent when it changes. `text` is ready to show."""

    ticket: int
    code: str
    text: str
    position: Optional[int] = None
    behind: Optional[str] = None
    since: Optional[float] = None


@message("interrupt")
class Interrupt(Message):
    """Server to backend, backend to guest and guard: end the waits of all threads of the session."""

    session: Optional[str] = None
