"""Every message between backend and peers, by who says it. `codec` turns them into JSON objects and back.

A connection begins with `hello`, answered by `welcome` or `failed`. Times are absolute: seconds since the Unix epoch.
An `epoch` numbers the turns of a backend and grows; what names an old one is ignored and counted.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from .codec import Message, message
from .turns import (
    CellFinished as CellFinished,
)
from .turns import (
    CellStarted as CellStarted,
)
from .turns import (
    Failed as Failed,
)
from .turns import (
    Hello as Hello,
)
from .turns import (
    Interrupt as Interrupt,
)
from .turns import (
    Ping as Ping,
)
from .turns import (
    Pong as Pong,
)
from .turns import (
    Progress as Progress,
)
from .turns import (
    TurnGranted as TurnGranted,
)
from .turns import (
    TurnReleased as TurnReleased,
)
from .turns import (
    TurnRevoked as TurnRevoked,
)
from .turns import (
    TurnWanted as TurnWanted,
)
from .turns import (
    TurnWithdrawn as TurnWithdrawn,
)
from .turns import (
    WaitExplained as WaitExplained,
)
from .turns import (
    Welcome as Welcome,
)

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
