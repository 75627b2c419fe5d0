"""A small world around the scheduler: guests that do as real ones do, with a clock of their own, in one thread.

Guests work in iterations, give revoked turns back at boundaries, ask for memory in mid-iteration; the device moves them,
sometimes late, sometimes not at all. The invariants are checked after each event, and so is what a guest may expect: turns
only for the wait that it is in, epochs that grow, room that was granted before it is used.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from jupyter_salus.backend.core import decisions, events
from jupyter_salus.backend.core.config import Config
from jupyter_salus.backend.core.scheduler import Scheduler
from jupyter_salus.errors import PeerError

MIB = 2**20
D = TypeVar("D", bound=decisions.Decision)


@dataclass(eq=False)
class Guest:
    """A kernel as it is in truth."""

    id: str
    device: str
    persistent: int
    ephemeral: int
    iteration_s: float
    evictable: bool
    alive: bool = True
    ticket: int = 0
    wanting: bool = False
    wanted_at: float = 0.0
    epoch: int | None = None
    lanes: frozenset[str] = frozenset()
    revoked: bool = False
    mapped: int = 0
    request: int = 0
    asking: int = 0
    iterations_left: int = 0
    #: Void when it changed.
    appointment: int = 0
    #: Devices from which it is out in host memory.
    out: set[str] = field(default_factory=set)
    #: All its devices, if they are several.
    devices: tuple[str, ...] = ()
    measured: bool = False
    began_at: float = 0.0
    stops: int = 0


@dataclass
class World:
    """One scheduler with its devices and guests."""

    seed: int = 0
    config: Config = field(default_factory=lambda: Config(max_wait_s=30.0, max_wait_priority_s=20.0))
    move_fails: float = 0.0
    move_late_s: float = 0.0
    grows: bool = True
    checking: bool = True

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.scheduler = Scheduler(self.config)
        self.now = 0.0
        self.guests: dict[str, Guest] = {}
        self.story: list[tuple[float, events.Event, tuple[decisions.Decision, ...]]] = []
        self.things: list[tuple[float, int, Callable[[], None]]] = []
        self.number = 0
        self.last_epoch = 0
        self.longest_wait = 0.0
        self.refused = 0
        self.queue: list[events.Event] = []
        self.telling = False
        self.on_event: Callable[[], None] | None = None

    # ---- the clock -----------------------------------------------------------------------------------------------

    def at(self, time: float, do: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.things, (max(time, self.now), self.number, do))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            thing = self.things[0][0] if self.things else float("inf")
            deadline = self.scheduler.next_deadline()
            due = max(deadline, self.now) if deadline is not None else float("inf")
            first = min(thing, due)
            if first > end:
                break
            self.now = first
            if due <= thing:
                self.tell(events.DeadlineReached())
            else:
                heapq.heappop(self.things)[2]()
        self.now = end

    # ---- the scheduler -------------------------------------------------------------------------------------------

    def tell(self, event: events.Event) -> None:
        """Hand over one event and carry out what comes of it. Errors of the scheduler's go to the caller."""
        self.queue.append(event)
        if self.telling:
            return
        self.telling = True
        try:
            while self.queue:
                event = self.queue.pop(0)
                decided = self.scheduler.handle(event, self.now)
                self.story.append((self.now, event, tuple(decided)))
                if self.checking:
                    self.scheduler.check_invariants()
                    if self.on_event is not None:
                        self.on_event()
                for decision in decided:
                    self.carry_out(decision)
        finally:
            self.telling = False
            self.queue.clear()

    def try_to(self, event: events.Event) -> bool:
        """Hand over what may not be possible; False: it wasn't, and nothing changed."""
        before = self.scheduler.snapshot(self.now)
        try:
            self.tell(event)
        except PeerError as error:
            assert error.message.startswith("cannot "), error.message
            assert self.scheduler.snapshot(self.now) == before
            return False
        return True

    def carry_out(self, decision: decisions.Decision) -> None:
        match decision:
            case decisions.GrantTurn():
                self._granted(decision)
            case decisions.RevokeTurn():
                guest = self.guests[decision.session]
                assert guest.epoch == decision.epoch
                assert decision.deadline_s > 0
                guest.revoked = True
            case decisions.StopTurn():
                guest = self.guests[decision.session]
                assert guest.epoch == decision.epoch
                assert guest.revoked
                guest.stops += 1
            case decisions.CountOut():
                assert self.guests[decision.session].epoch == decision.epoch
            case decisions.SuspendTurn():
                guest = self.guests[decision.session]
                assert guest.epoch == decision.epoch
                assert guest.asking, "only one that waits for room"
                self._suspended(guest)
            case decisions.EvictSession():
                self._evict(decision)
            case decisions.RestoreSession():
                self._restore(decision)
            case decisions.GrantGrowth():
                guest = self.guests[decision.session]
                assert guest.request == decision.request
                assert guest.epoch is not None
                guest.mapped += guest.asking
                guest.asking = 0
                self._work(guest)
            case decisions.RefuseGrowth():
                guest = self.guests[decision.session]
                assert decision.message.startswith("cannot ")
                self.refused += 1
                guest.asking = 0
                guest.iterations_left = 0
                self._work(guest)
            case decisions.ExplainWait():
                assert decision.session in self.guests
            case _:
                raise AssertionError(decision)

    # ---- guests --------------------------------------------------------------------------------------------------

    def device(self, name: str = "gpu", capacity: int = 1000 * MIB, **more: bool | int | str) -> None:
        self.tell(events.DeviceMeasured(name, capacity, **{"moves": True, **more}))  # type: ignore[arg-type]

    def open(
        self,
        id: str,
        *,
        device: str = "gpu",
        persistent: int = 10,
        ephemeral: int = 10,
        iteration_s: float = 0.2,
        evictable: bool = True,
        priority: str = "normal",
        profile: events.Profile | None = None,
        user: str = "u",
        devices: tuple[str, ...] = (),
        roams: bool = False,
    ) -> Guest:
        """A kernel starts. Sizes in MiB."""
        guest = Guest(id, device, persistent * MIB, ephemeral * MIB, iteration_s, evictable)
        if profile is None:
            profile = events.Profile(persistent_bytes=guest.persistent, ephemeral_bytes=guest.ephemeral)
        if devices:
            guest.device, guest.devices = devices[0], devices
        self.guests[id] = guest
        opened = events.SessionOpened(
            id, user, guest.device, priority, evictable, profile=profile, devices=devices, roams=roams
        )
        self.tell(opened)
        return guest

    def want(self, guest: Guest, iterations: int = 1_000_000) -> None:
        """A cell begins that does so many iterations."""
        guest.iterations_left = iterations
        self._want(guest)
        self.tell(events.TurnRequested(guest.id, guest.ticket))

    def _want(self, guest: Guest) -> None:
        guest.ticket += 1
        guest.wanting = True
        guest.wanted_at = self.now

    def _granted(self, decision: decisions.GrantTurn) -> None:
        guest = self.guests[decision.session]
        assert guest.wanting and guest.ticket == decision.ticket, "a turn for a wait that isn't"
        assert decision.epoch > self.last_epoch, "epochs grow"
        assert not guest.out, "a turn for a session that is out"
        self.last_epoch = decision.epoch
        self.longest_wait = max(self.longest_wait, self.now - guest.wanted_at)
        guest.wanting = False
        guest.epoch, guest.revoked, guest.stops = decision.epoch, False, 0
        guest.lanes = frozenset(decision.lanes or (decision.lane,))
        assert len(guest.lanes) == max(len(guest.devices), 1), "a turn on all devices at once"
        # One that answered no attempt to stop it is counted out.
        attempts = len(self.config.stop_waits_s)
        others = [one for one in self.guests.values() if one is not guest and one.stops < attempts]
        holders = [one for one in others if one.epoch is not None]
        assert not any(one.lanes & guest.lanes for one in holders), "two in one lane"
        guest.began_at = self.now
        if not guest.asking:
            self._work(guest)

    def _work(self, guest: Guest) -> None:
        guest.appointment += 1
        appointment, epoch = guest.appointment, guest.epoch

        def go_on() -> None:
            if guest.appointment == appointment and guest.epoch == epoch and guest.alive:
                self._step(guest)

        part = 0.5 if self.grows else 1.0
        self.at(self.now + guest.iteration_s * part * self.random.uniform(0.9, 1.1), go_on)

    def _step(self, guest: Guest) -> None:
        """Half an iteration is over: in its middle it may ask for memory, at its end is a boundary."""
        need = guest.ephemeral - guest.mapped
        if self.grows and need > 0 and guest.iterations_left > 0:
            guest.request += 1
            guest.asking = min(need, max(guest.ephemeral // 2, 1))
            self.tell(events.GrowthAsked(guest.id, guest.request, guest.asking))
        else:
            self.boundary(guest)

    def boundary(self, guest: Guest) -> None:
        """The end of an iteration; a revoked turn or the last iteration's end passes the turn on."""
        assert guest.epoch is not None
        guest.mapped = 0
        guest.iterations_left -= 1
        epoch = guest.epoch
        if not guest.measured:
            guest.measured = True
            for device in guest.devices or ("",):
                self.tell(events.MemoryMeasured(guest.id, guest.persistent, guest.ephemeral, device))
        busy = self.now - guest.began_at
        guest.began_at = self.now
        self.tell(events.IterationsFinished(guest.id, epoch, 1, busy))
        if not guest.alive or guest.epoch != epoch:
            return
        if guest.iterations_left <= 0:
            self.release(guest, more=False)
        elif guest.revoked:
            self.release(guest, more=True)
        else:
            self._work(guest)

    def release(self, guest: Guest, *, more: bool) -> None:
        epoch = guest.epoch
        assert epoch is not None
        guest.epoch, guest.revoked = None, False
        if more:
            self._want(guest)
        self.tell(events.TurnReleased(guest.id, epoch, guest.ticket if more else None))

    def crash(self, guest: Guest, freed_after_s: float = 0.1, *, restarts: bool = False) -> None:
        """The kernel is gone; its bytes come back later."""
        guest.alive = guest.wanting = False
        guest.epoch = None
        del self.guests[guest.id]
        self.tell(events.LeaseLost(guest.id, restarts))
        self.at(self.now + freed_after_s, lambda: self.tell(events.BytesFreed(guest.id)))

    def _suspended(self, guest: Guest) -> None:
        """Its turn was taken in mid-iteration; it waits on under the same ticket."""
        guest.epoch = None
        self._want(guest)
        guest.ticket -= 1

    # ---- moves ---------------------------------------------------------------------------------------------------

    def _evict(self, decision: decisions.EvictSession) -> None:
        guest = self.guests[decision.session]
        assert guest.evictable and decision.device not in guest.out
        if guest.epoch is not None:
            assert guest.asking, "only one that waits for room goes out in the middle of its turn"
            self._suspended(guest)
        seconds = 0.05 + self.random.random() * self.move_late_s
        fails = self.random.random() < self.move_fails

        def done() -> None:
            if not guest.alive:
                return
            if fails:
                self.tell(events.EvictionFailed(guest.id, decision.move, "host memory is short"))
            else:
                guest.out.add(decision.device)
                self.tell(events.SessionEvicted(guest.id, decision.move, seconds, guest.persistent + guest.mapped))

        self.at(self.now + seconds, done)

    def _restore(self, decision: decisions.RestoreSession) -> None:
        guest = self.guests[decision.session]
        if guest.devices:
            assert decision.device in guest.out
        else:
            assert guest.out
            guest.device = decision.device
        seconds = 0.05 + self.random.random() * self.move_late_s
        fails = self.random.random() < self.move_fails

        def done() -> None:
            if not guest.alive:
                return
            if fails:
                self.tell(events.RestoreFailed(guest.id, decision.move, "a block didn't come back"))
            else:
                if guest.devices:
                    guest.out.remove(decision.device)
                else:
                    guest.out.clear()
                self.tell(events.SessionRestored(guest.id, decision.move, seconds))

        self.at(self.now + seconds, done)

    # ---- what tests look at --------------------------------------------------------------------------------------

    def holders(self, device: str = "gpu") -> list[str]:
        return [
            one.id for one in self.guests.values() if one.epoch is not None and device in (one.devices or (one.device,))
        ]

    def row(self, id: str):
        rows = {row.id: row for row in self.scheduler.snapshot(self.now).sessions}
        return rows[id]

    def user_row(self, name: str = "u"):
        return {row.user: row for row in self.scheduler.snapshot(self.now).users}[name]

    def device_row(self, id: str = "gpu"):
        return {row.id: row for row in self.scheduler.snapshot(self.now).devices}[id]

    def decided(self, kind: type[D]) -> list[D]:
        return [decision for _, _, all_ in self.story for decision in all_ if isinstance(decision, kind)]
