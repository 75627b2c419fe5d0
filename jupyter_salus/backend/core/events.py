"""What happened, in the past tense: all that the core is ever told. The daemon and the simulator make them.

Times come beside the event (`handle(event, now)`, seconds, monotonic). An event that names an old epoch, move or ticket
is ignored and counted. Bytes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


# ---- sessions come and go --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Profile:
    """What an earlier run of the same notebook taught, or what a simulated trace declares; None where nothing is known."""

    persistent_bytes: int | None = None
    ephemeral_bytes: int | None = None
    iteration_s: float | None = None
    #: Seconds of device time that earlier runs took, oldest first: the first guess of a whole run's length.
    durations_s: tuple[float, ...] = ()
    #: Seconds of device time declared for this run (only `srtf` reads it).
    declared_s: float | None = None
    #: Share of the device that the session uses alone, 0 to 1.
    device_share: float | None = None


@dataclass(frozen=True, slots=True)
class SessionOpened(Event):
    """A session is there: laneless, without a turn. `evictable`: its device can move it (False on `host`).

    `devices`: all that it needs turns on, if they are several; it gets them at once (`device` is the first). `roams`: once
    out whole it may return to another device of the kind. `holding`: it came back to a new backend while it had a turn, with
    `persistent_bytes` on the device. `out_bytes`: it came back to one while it was out, with so many bytes in host memory.
    """

    session: str
    user: str
    device: str
    priority: str = "normal"
    evictable: bool = False
    holding: bool = False
    persistent_bytes: int = 0
    profile: Profile | None = None
    out_bytes: int = 0
    devices: tuple[str, ...] = ()
    roams: bool = False


@dataclass(frozen=True, slots=True)
class EvictableChanged(Event):
    """Whether a session's bytes can be moved is known now, or isn't so any more."""

    session: str
    evictable: bool


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    """The peer is gone. Its turn and its place in queues end at once; its bytes stay until `BytesFreed`.

    `restarts`: its kernel is expected back under the same id, and its seat is kept for a while.
    """

    session: str
    restarts: bool = False


@dataclass(frozen=True, slots=True)
class SeatLeft(Event):
    """Nobody comes back to the seat that is kept for this session."""

    session: str


@dataclass(frozen=True, slots=True)
class BytesFreed(Event):
    """The device shows the bytes of a session whose lease was lost as free again: the session is closed."""

    session: str


@dataclass(frozen=True, slots=True)
class SessionBroken(Event):
    """A sticky device error: the session can't go on, gives its turn back and never blocks others."""

    session: str
    message: str


# ---- turns ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TurnRequested(Event):
    """The session wants the device. `background`: outside any cell; `silent`: an inspector's execution (waits last)."""

    session: str
    ticket: int
    background: bool = False
    silent: bool = False


@dataclass(frozen=True, slots=True)
class TurnWithdrawn(Event):
    """The wait under `ticket` ended by itself (an interrupt)."""

    session: str
    ticket: int


@dataclass(frozen=True, slots=True)
class TurnReleased(Event):
    """The session gave its turn back at a boundary. `ticket`: it wants the next one at once, under this number.

    `stopped_bytes`: it was stopped in mid-iteration and still holds so many ephemeral bytes; `stopped_elsewhere`: so many on
    each other device of a session on several. `count`, `busy_s` and `remaining`: an `IterationsFinished` with it, so that
    who waits for the turn waits for one event.
    """

    session: str
    epoch: int
    ticket: int | None = None
    stopped_bytes: int = 0
    stopped_elsewhere: tuple[tuple[str, int], ...] = ()
    count: int | None = None
    busy_s: float = 0.0
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class IterationsFinished(Event):
    """A boundary was passed in a turn: `count` iterations in `busy_s` seconds since the last such event of the turn.

    The session is at a boundary now: its E is empty and its quantum may end here. `busy_s` are seconds of the clock.
    `remaining`: iterations still to come, where a framework tells. `device_share`: the part of `busy_s` in which the
    device worked for this session, 0 to 1, as it was in those seconds (side by side it is less than alone).
    """

    session: str
    epoch: int
    count: int
    busy_s: float
    remaining: int | None = None
    device_share: float | None = None
    host_bound: bool | None = None


@dataclass(frozen=True, slots=True)
class CellStarted(Event):
    """A cell began (short-cell credit; the session isn't in host work between cells)."""

    session: str


@dataclass(frozen=True, slots=True)
class CellFinished(Event):
    """The last open cell ended."""

    session: str


# ---- memory ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryMeasured(Event):
    """P and E as the device shows them; None: not measured this time. On the host device growth is seen only so.

    `device`: on which one, "" for the session's first.
    """

    session: str
    persistent_bytes: int | None = None
    ephemeral_bytes: int | None = None
    device: str = ""


@dataclass(frozen=True, slots=True)
class GrowthAsked(Event):
    """A session in a turn asks for more ephemeral or persistent bytes before it maps them (`request` is its number).

    `device`: on which one, "" for the session's first.
    """

    session: str
    request: int
    extra_bytes: int
    device: str = ""


@dataclass(frozen=True, slots=True)
class GrowthWithdrawn(Event):
    """The session no longer waits for this request."""

    session: str
    request: int


@dataclass(frozen=True, slots=True)
class SessionEvicted(Event):
    """The move out is done: `freed_bytes` are off the device, in host memory."""

    session: str
    move: int
    seconds: float
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class EvictionFailed(Event):
    """The move out was refused or failed; the bytes are where they were."""

    session: str
    move: int
    reason: str


@dataclass(frozen=True, slots=True)
class SessionRestored(Event):
    """The return is done: the bytes are on the device again."""

    session: str
    move: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RestoreFailed(Event):
    """The return failed; the bytes are in host memory still."""

    session: str
    move: int
    reason: str


@dataclass(frozen=True, slots=True)
class DeviceMeasured(Event):
    """A device is there, or its figures changed. Net of the reserve is what sessions may have. The first one adds it."""

    device: str
    capacity_bytes: int
    foreign_bytes: int = 0
    reserve_bytes: int = 0
    #: Sessions can be moved out of it.
    moves: bool = False
    #: Several lanes may be open side by side (False on `host`: one open lane at a time).
    side_by_side: bool = True
    #: Devices of one kind are alike: a session that is out may return to another one of them. "": like no other.
    kind: str = ""


# ---- what people ask ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PriorityChanged(Event):
    """`high`, `normal` or `low`."""

    session: str
    priority: str


@dataclass(frozen=True, slots=True)
class UserLimits(Event):
    """What a user may have, all of it; the last one counts. None: as much as there is.

    `weight` is the user's among all users under `fair`. What the user has already stays theirs, priorities are lowered.
    """

    user: str
    weight: float = 1.0
    max_priority: str = "high"
    #: Sessions that may be open, seats of kernels that restart among them.
    max_sessions: int | None = None
    #: P of all the user's sessions together on devices, in bytes.
    persistent_bytes: int | None = None
    #: Host memory for what of theirs is moved out, in bytes.
    host_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PinChanged(Event):
    """A pinned session is evicted last."""

    session: str
    pinned: bool


@dataclass(frozen=True, slots=True)
class YieldAsked(Event):
    """Somebody asks the session to pass its turn on at the next boundary."""

    session: str


@dataclass(frozen=True, slots=True)
class EvictAsked(Event):
    """Somebody asks for the session to be moved out now, if it is idle or can be stopped."""

    session: str


@dataclass(frozen=True, slots=True)
class RestoreAsked(Event):
    """Somebody asks for the session to come back now, if there is room."""

    session: str


@dataclass(frozen=True, slots=True)
class PolicyChanged(Event):
    """`fair`, `fifo`, `srtf`, `pack` or `priority`, for one device."""

    device: str
    policy: str


@dataclass(frozen=True, slots=True)
class DrainAsked(Event):
    """A device is to be maintained: turns end, what can be moved goes out, nobody gets a turn. `draining` False: that is over.

    `reason` is shown to those who wait.
    """

    device: str
    draining: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeadlineReached(Event):
    """The time that `next_deadline()` named has come."""
