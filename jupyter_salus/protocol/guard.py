"""The guard's messages, and what the backend says to it. `docs/reference/wire-guard.md` tells the order of things.

The other end is written in C and knows these kinds alone. Standard library, Python 3.9.
"""

from __future__ import annotations

from typing import Optional

from .codec import Message, message
from .turns import (
    Ping as Ping,
)
from .turns import (
    Pong as Pong,
)

# ---- guard to backend -------------------------------------------------------------------------------------------------


@message("touched")
class Touched(Message):
    """A call waits at the gate: the process wants a turn."""

    ticket: int


@message("turn_drained")
class TurnDrained(Message):
    """The gate is shut and the device has done all that this process gave it. What it holds then is said as in `memory`."""

    epoch: int
    persistent_bytes: Optional[int] = None
    evicted_bytes: Optional[int] = None
    fixed_bytes: Optional[int] = None
    reason: Optional[str] = None


@message("room_wanted")
class RoomWanted(Message):
    """A request for memory waits: the driver refused it, or it is beyond what was granted. `what` says of which kind."""

    ticket: int
    bytes: int
    what: str
    persistent_bytes: Optional[int] = None
    evicted_bytes: Optional[int] = None
    fixed_bytes: Optional[int] = None
    reason: Optional[str] = None


@message("room_withdrawn")
class RoomWithdrawn(Message):
    """That request waits no more."""

    ticket: int


@message("blocks_out")
class BlocksOut(Message):
    """An eviction is done: so many bytes are off the device."""

    epoch: int
    move: int
    bytes: int
    dropped_bytes: int
    seconds: float


@message("blocks_back")
class BlocksBack(Message):
    """A return is done: all that was out is back."""

    epoch: int
    move: int
    bytes: int
    dropped_bytes: int
    seconds: float


@message("arena_ready")
class ArenaReady(Message):
    """Host memory for an eviction is prepared."""

    epoch: int
    move: int
    bytes: int
    dropped_bytes: int
    seconds: float


@message("move_failed")
class MoveFailed(Message):
    """An order was not, or not wholly, carried out; `code` says in which state things are."""

    epoch: int
    move: int
    code: str
    message: str


@message("memory")
class Memory(Message):
    """What the process holds: all that is known, of it in host memory, of it immovable; `reason`: nothing can be moved."""

    persistent_bytes: int
    evicted_bytes: int
    fixed_bytes: int
    reason: Optional[str] = None


@message("note")
class Note(Message):
    """Something a person may want to know."""

    message: str


@message("error")
class Error(Message):
    """What the backend said can't be taken."""

    code: str
    message: str


# ---- backend to guard -------------------------------------------------------------------------------------------------


@message("open_gate")
class OpenGate(Message):
    """A turn; with `calls`, only that many waiting calls pass. `granted_bytes`: what may be held before asking."""

    epoch: int
    calls: Optional[int] = None
    granted_bytes: Optional[int] = None
    limit_bytes: Optional[int] = None
    reclaimable_bytes: Optional[int] = None


@message("close_gate")
class CloseGate(Message):
    """Shut the gate, and say when the device is drained."""

    epoch: int
    drain_s: float


@message("evict_blocks")
class EvictBlocks(Message):
    """Move out all that can be moved, into so many bytes of host memory at most."""

    move: int
    host_bytes: Optional[int] = None


@message("restore_blocks")
class RestoreBlocks(Message):
    """Bring all of it back."""

    move: int


@message("room_granted")
class RoomGranted(Message):
    """The request is to be tried again."""

    ticket: int
    granted_bytes: Optional[int] = None


@message("room_refused")
class RoomRefused(Message):
    """The request ends in the framework's own out-of-memory error."""

    ticket: int
    message: str


@message("device_memory")
class DeviceMemory(Message):
    """What the process may hold and is told of its device."""

    granted_bytes: Optional[int] = None
    limit_bytes: Optional[int] = None
    reclaimable_bytes: Optional[int] = None


@message("prepare_arena")
class PrepareArena(Message):
    """Touch and pin host memory ahead of an eviction."""

    move: int
    bytes: int


@message("drop_arena")
class DropArena(Message):
    """Give the host memory back."""

    move: int
