"""A virtual guest: one job as its kernel would live it, and how far its work is.

It holds no rule of scheduling: `machine` moves it from state to state as the core's decisions come.
"""

from __future__ import annotations

import math
from collections import deque
from enum import Enum

from .trace import Job


class State(Enum):
    """Where a guest is. Only a `RUNNING` one works and uses the device."""

    #: Host work before the first touch.
    STARTING_UP = "starting up"
    #: Wants a turn.
    WAITING = "waiting"
    #: Has a turn; the hand-over isn't over.
    TAKING_OVER = "taking over"
    RUNNING = "running"
    #: Has a turn and waits for memory in mid-iteration.
    GROWING = "growing"
    GONE = "gone"


class Guest:
    """One job's virtual kernel. `done` counts iterations with their fraction; whole numbers of it are boundaries."""

    def __init__(self, job: Job, device: str, *, asks_for_memory: bool) -> None:
        self.job = job
        self.device = device
        self.state = State.WAITING
        self.lane: str | None = None
        self.epoch: int | None = None
        self.revoked = False
        self.ticket = 0
        self.wanted_at = 0.0
        self.first_turn_at: float | None = None
        self.finished_at: float | None = None
        # Work.
        self.done = 0.0
        self.target = 0.0
        self.speed = 1.0
        self.settled_at = 0.0
        self.turn_began_at_done = 0.0
        #: Changes whenever an earlier appointment with the clock is void.
        self.appointment = 0
        # What the next report will say.
        self.reported = 0
        self.busy_s = 0.0
        self.device_s = 0.0
        #: Reports that still come at the shortest interval, since there is something new to learn.
        self.close_reports = 0
        # Memory on the device or, when evicted, in host memory.
        self.resident = False
        self.persistent_bytes = 0 if asks_for_memory else job.workload.persistent_bytes
        self.ephemeral_bytes = 0 if asks_for_memory else job.workload.ephemeral_bytes
        self.request = 0
        #: A request is out and not answered.
        self.asking = False
        #: (iterations done, bytes): what it will ask for on its way through the first iteration, its P first.
        self.asks: deque[tuple[float, int]] = deque(self._plan_asks() if asks_for_memory else ())
        self.measured = not asks_for_memory
        # For the log: the last iteration whose end is written.
        self.logged = 0

    def _plan_asks(self) -> list[tuple[float, int]]:
        workload = self.job.workload
        asks = [(0.0, workload.persistent_bytes)] if workload.persistent_bytes else []
        step = self.job.growth_bytes or workload.ephemeral_bytes
        steps = math.ceil(workload.ephemeral_bytes / step) if step else 0
        left = workload.ephemeral_bytes
        for number in range(steps):
            asks.append((number / steps, min(step, left)))
            left -= step
        return asks

    def measure(self) -> None:
        """At its first boundary it shows which of its bytes stay: what persists isn't known before."""
        self.measured = True
        self.persistent_bytes = self.job.workload.persistent_bytes
        self.ephemeral_bytes = self.job.workload.ephemeral_bytes

    @property
    def id(self) -> str:
        return self.job.job_id

    @property
    def at_boundary(self) -> bool:
        return self.done == math.floor(self.done)

    @property
    def held_bytes(self) -> int:
        """What a move takes along: P, and E unless it is at a boundary (before its first one nothing counts as P yet)."""
        empty = self.at_boundary and self.measured
        return self.persistent_bytes + (0 if empty else self.ephemeral_bytes)

    @property
    def remaining(self) -> int:
        return self.job.iterations - int(self.done)

    def settle(self, now: float, device_part: float) -> None:
        """Count the work since the last time, at the speed that held, with `device_part` of the device's time it wanted."""
        elapsed = now - self.settled_at
        if elapsed > 0.0 and self.state is State.RUNNING:
            self.done = min(self.done + elapsed * self.speed / self.job.workload.iteration_s, self.target)
            self.busy_s += elapsed
            self.device_s += elapsed * self.job.workload.gpu_share * device_part
        self.settled_at = now

    def time_of(self, done: float) -> float:
        """When it will have done so many iterations at the present speed."""
        return self.settled_at + (done - self.done) * self.job.workload.iteration_s / self.speed

    def next_boundary(self) -> int:
        """The end of the iteration in flight, or of the one that begins now."""
        return min(math.floor(self.done) + 1, self.job.iterations)

    def boundary_after(self, seconds: float) -> int:
        """The first boundary so many seconds or more from now."""
        count = seconds * self.speed / self.job.workload.iteration_s
        return min(max(math.ceil(self.done + count), self.next_boundary()), self.job.iterations)
