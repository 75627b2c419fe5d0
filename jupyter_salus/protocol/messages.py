"""Every message between backend and peers, by who says it. `codec` turns them into JSON objects and back.

A connection begins with `hello`, answered by `welcome` or `failed`. Times are absolute: seconds since the Unix epoch.
An `epoch` numbers the turns of a backend and grows; what names an old one is ignored and counted.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from .codec import Message, message

# ---- any peer ---------------------------------------------------------------------------------------------------------


@message("hello")
class Hello(Message):
    """A peer's first message. `role`: guest, guard, server or client. `protocol`: first and last version spoken.

    A guest names its session, the token that its server announced (spent by the first hello of an incarnation; on a
    reconnection the `key` from the welcome stands for it), and, if it had a turn when the backend went, `holding`.
    `guarded`: the guard is loaded in its process. A guard says whether its gate is `open` or `shut`, the `epoch` that
    this goes back to, and what it holds, in the fields of `memory`.
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


# ---- server and client to backend ------------------------------------------------------------------------------------


@message("announce")
class Announce(Message):
    """A server is about to launch a kernel: this token will come in its guest's hello. Answered with `done`."""

    request: int
    session: str
    token: str
    incarnation: int
    kernel_id: Optional[str] = None
    name: Optional[str] = None
    path: Optional[str] = None
    priority: Optional[str] = None


@message("launched")
class Launched(Message):
    """The kernel of an announced session runs with this pid; a kernel that can't be managed is shown with `unmanaged`.

    `unguarded`: why the guard wasn't preloaded into it, on a host with a GPU's driver; the session is plain there.
    """

    request: int
    session: str
    pid: Optional[int] = None
    unmanaged: Optional[str] = None
    unguarded: Optional[str] = None


@message("describe")
class Describe(Message):
    """A notebook was renamed or moved."""

    request: int
    session: str
    name: str
    path: str


@message("ended")
class Ended(Message):
    """The server ended the kernel, or it failed to start: the session is closed, its announcement void."""

    request: int
    session: str


@message("act")
class Act(Message):
    """A verb on a session or device: `priority`, `pinned`, `yield`, `evict`, `restore`, `policy`. Answered with `done`."""

    request: int
    verb: str
    target: str
    value: Optional[str] = None


@message("ask")
class Ask(Message):
    """A question: `state`, `history` (`since`: a revision), `journal`, `metrics`. Answered with `answer`."""

    request: int
    what: str
    since: Optional[int] = None


@message("subscribe")
class Subscribe(Message):
    """From now on send `state_changed`, the first at once and whole, then at most four a second."""

    request: int


# ---- backend to server and client -------------------------------------------------------------------------------------


@message("done")
class Done(Message):
    """The request was carried out, or is on its way where it takes time."""

    request: int
    body: Optional[Dict[str, Any]] = None


@message("answer")
class Answer(Message):
    """What was asked for; for `state` the body is the REST state."""

    request: int
    body: Dict[str, Any]


@message("state_changed")
class StateChanged(Message):
    """Changed rows since `previous_revision`; the first one has `previous_revision` 0 and everything.

    `devices` and `lanes` are whole lists when they changed, else missing; `sessions` the changed rows.
    """

    revision: int
    previous_revision: int
    as_of: float
    backend: Optional[Dict[str, Any]] = None
    devices: Optional[Tuple[Any, ...]] = None
    lanes: Optional[Tuple[Any, ...]] = None
    sessions: Optional[Tuple[Any, ...]] = None
    removed_sessions: Optional[Tuple[Any, ...]] = None
