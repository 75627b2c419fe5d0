"""Guarded sessions as the daemon knows them: the guards in their processes, and what is under way with them.

Memory is each process's own, turns are the session's: its gates open and close together. Plain data; the rules are in
`gates` (turns), `rooms` (growth), `transfers` (out and back) and `guards` (who comes and goes).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from .connections import Connection
from .peers import Watch
from .records import Record

#: Tickets that the daemon makes begin here, so that none is a guest's.
OWN_TICKETS = 1 << 32


class Holdings(Protocol):
    """What a guard says of its memory in several of its messages; None: not said this time."""

    @property
    def persistent_bytes(self) -> int | None: ...

    @property
    def evicted_bytes(self) -> int | None: ...

    @property
    def fixed_bytes(self) -> int | None: ...

    @property
    def reason(self) -> str | None: ...


@dataclass(slots=True, eq=False)
class Request:
    """A thread's wait for room."""

    bytes: int
    what: str
    #: It is being looked at: what is free on the device itself is asked for.
    looking: bool = False


@dataclass(slots=True, eq=False)
class Guard:
    """One process of a session. Without a connection it is on its way back, or gone with bytes that aren't free yet."""

    pid: int
    connection: Connection | None = None
    watch: Watch | None = None
    ended: bool = False
    #: As far as is known: its gate is shut and the device has nothing more to do for it.
    shut: bool = True
    #: A call of it waits at the gate.
    wants: bool = False
    persistent_bytes: int = 0
    evicted_bytes: int = 0
    fixed_bytes: int = 0
    #: Why nothing of it can be moved, if so.
    fixed: str | None = None
    #: An order to move is with it.
    moving: bool = False
    #: What its context takes; found from outside, 0 where that isn't told.
    context_bytes: int = 0
    #: What the device and the guard said last, each of its own time: only what they say twice is held together.
    seen_bytes: tuple[int, int] = (-1, -1)
    #: What it may hold on the device before it asks.
    granted_bytes: int = 0
    requests: dict[int, Request] = field(default_factory=dict)
    #: The kind of request that the driver refused last although the books had room for it, how often, and when.
    refused: tuple[str, int] = ("", 0)
    refusals: int = 0
    refused_at: float = 0.0

    @property
    def here_bytes(self) -> int:
        """What of its memory is on the device, its context apart."""
        return max(self.persistent_bytes - self.evicted_bytes, 0)

    @property
    def device_bytes(self) -> int:
        """All that it has of the device."""
        return self.here_bytes + self.context_bytes

    @property
    def movable_bytes(self) -> int:
        """What an eviction would free."""
        return 0 if self.fixed is not None else max(self.here_bytes - self.fixed_bytes, 0)

    def heard(self, said: Holdings) -> None:
        """Take in what it says of its memory."""
        if said.persistent_bytes is not None:
            self.persistent_bytes = max(said.persistent_bytes, 0)
            self.evicted_bytes = min(max(said.evicted_bytes or 0, 0), self.persistent_bytes)
            self.fixed_bytes = max(said.fixed_bytes or 0, 0)
            self.fixed = said.reason


@dataclass(slots=True, eq=False)
class Closing:
    """The gates of a session are closing. `stopped`: in mid-iteration. `suspended`: the core took the turn already, to
    move the session out whole; then `then` hears of the outcome: None, or why not."""

    stopped: bool
    waiting: set[Guard]
    suspended: bool = False


@dataclass(slots=True, eq=False)
class Growth:
    """The request for memory that the core has of a session."""

    number: int
    guard: Guard
    ticket: int


@dataclass(slots=True, eq=False)
class Move:
    """A move that the core asked for: whose answers are awaited, and what came of it until now."""

    number: int
    out: bool
    waiting: set[Guard] = field(default_factory=set)
    bytes: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    #: How often a return without room was tried again; it is being undone.
    tries: int = 0
    undoing: bool = False


@dataclass(slots=True, eq=False)
class Guarded:
    """One session."""

    record: Record
    guards: dict[int, Guard] = field(default_factory=dict)
    #: The core has it among those that wait for a turn, under this ticket.
    waiting: bool = False
    ticket: int = 0
    made_tickets: int = OWN_TICKETS
    #: Its guest waits under this ticket.
    guest_ticket: int | None = None
    #: The last turn's epoch, for what is said to guards after it.
    last_epoch: int = 0
    revoked: bool = False
    #: Until when an interrupt lets calls pass without a turn; once between two turns.
    passes_until: float | None = None
    closing: Closing | None = None
    #: Closings that failed in a row.
    failures: int = 0
    #: P as the core was told last, and the most that was held in this turn.
    told_bytes: int = 0
    peak_bytes: int = 0
    growth: Growth | None = None
    move: Move | None = None
    #: How long a turn outside cells lasts, and when the last one ended.
    rest_s: float = 0.0
    rested_at: float = float("-inf")
    timer: asyncio.TimerHandle | None = None

    @property
    def device_bytes(self) -> int:
        """All that its processes have of the device."""
        return sum(guard.device_bytes for guard in self.guards.values())

    @property
    def evicted_bytes(self) -> int:
        """What of it is in host memory."""
        return sum(guard.evicted_bytes for guard in self.guards.values())

    def connected(self) -> Iterator[Guard]:
        """The guards that can be spoken to."""
        return (guard for guard in self.guards.values() if guard.connection is not None)

    @property
    def wants(self) -> bool:
        """Whether a call waits at a gate, or for room."""
        return any(guard.wants or guard.requests for guard in self.connected())

    def end(self) -> None:
        """The lease is over: nothing is under way any more."""
        self.waiting = self.revoked = False
        self.guest_ticket = None
        self.closing = self.growth = self.move = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def next_ticket(self) -> int:
        """A ticket of the daemon's own."""
        self.made_tickets += 1
        return self.made_tickets
