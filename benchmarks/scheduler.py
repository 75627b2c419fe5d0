"""How long a decision takes: sessions by lanes, in full contention, over arrivals, finishes, revocations and growth.

`python -m benchmarks.scheduler` prints a table. Every session wants the device all the time; quanta end, turns pass on,
sessions end and others come, some ask for memory on their way, and not all of them fit on the device at once, so that
evictions and returns are among the decisions. The clock is virtual; what is measured is the processor time of `handle`.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from time import thread_time_ns

from jupyter_salus.backend.core import decisions, events
from jupyter_salus.backend.core.config import Config
from jupyter_salus.backend.core.scheduler import Scheduler

MIB = 2**20
DEVICE = "gpu0"
#: Part of the sessions' persistent bytes that fits on the device together.
FITS = 0.9
PERSISTENT_BYTES = 4 * MIB
EPHEMERAL_BYTES = 64 * MIB
GROWTH_BYTES = MIB
ITERATION_S = 0.03
#: A session ends after so many iterations, and another one arrives.
ITERATIONS = 40
#: One iteration in so many asks for memory.
GROWTH_EVERY = 10
TARGET_P50_US, TARGET_P99_US = 50.0, 500.0


@dataclass
class Member:
    """A session of the load."""

    id: str
    left: int
    ticket: int = 1
    epoch: int | None = None
    revoked: bool = False
    request: int = 0
    grown: bool = False


@dataclass
class Load:
    """Keeps one scheduler busy with `sessions` sessions on a device that has room for `lanes` lanes."""

    sessions: int
    lanes: int
    policy: str
    #: Nanoseconds by kind of event.
    spent: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.sessions}/{self.lanes}/{self.policy}")
        self.scheduler = Scheduler(Config())
        self.now = 0.0
        self.things: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = count(1)
        self.members: dict[str, Member] = {}
        self.inbox: deque[events.Event] = deque()
        self.alarm: float | None = None
        self.measuring = False
        self.handled = 0
        capacity = self.lanes * EPHEMERAL_BYTES + int(self.sessions * PERSISTENT_BYTES * FITS)
        self.tell(events.DeviceMeasured(DEVICE, capacity, moves=True))
        self.tell(events.PolicyChanged(DEVICE, self.policy))
        for _ in range(self.sessions):
            self.arrive()

    def run(self, decided: int) -> None:
        """Go on for so many decisions, first without and then with measuring."""
        self._until(self.handled + decided // 4)
        self.measuring = True
        self._until(self.handled + decided)

    def _until(self, handled: int) -> None:
        while self.handled < handled:
            at, _, action = heapq.heappop(self.things)
            self.now = max(self.now, at)
            action()

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.things, (self.now + seconds, next(self.numbers), action))

    def tell(self, *news: events.Event) -> None:
        idle = not self.inbox
        self.inbox.extend(news)
        if not idle:
            return
        while self.inbox:
            event = self.inbox[0]
            begin = thread_time_ns()
            decided = self.scheduler.handle(event, self.now)
            elapsed = thread_time_ns() - begin
            self.handled += 1
            if self.measuring:
                self.spent.setdefault(type(event).__name__, []).append(elapsed)
            for decision in decided:
                self.carry_out(decision)
            self.inbox.popleft()
        deadline = self.scheduler.next_deadline()
        if deadline is not None and (self.alarm is None or deadline < self.alarm):
            self.alarm = deadline
            self.at(deadline - self.now, self.ring)

    def ring(self) -> None:
        self.alarm = None
        deadline = self.scheduler.next_deadline()
        if deadline is not None and deadline <= self.now:
            self.tell(events.DeadlineReached())

    def arrive(self) -> None:
        member = Member(f"s{next(self.numbers)}", self.random.randint(1, 2 * ITERATIONS))
        self.members[member.id] = member
        profile = events.Profile(
            persistent_bytes=PERSISTENT_BYTES,
            ephemeral_bytes=self.random.randint(EPHEMERAL_BYTES // 2, EPHEMERAL_BYTES),
            device_share=0.9 / self.lanes,
        )
        self.tell(
            events.SessionOpened(member.id, "load", DEVICE, evictable=True, profile=profile),
            events.CellStarted(member.id),
            events.TurnRequested(member.id, member.ticket),
        )

    def carry_out(self, decision: decisions.Decision) -> None:
        match decision:
            case decisions.GrantTurn(session=session, epoch=epoch, ticket=ticket):
                member = self.members.get(session)
                if member is not None and member.epoch is None and member.ticket == ticket:
                    member.epoch, member.revoked = epoch, False
                    self.at(ITERATION_S, partial(self.iterate, member, epoch))
            case decisions.RevokeTurn(session=session, epoch=epoch):
                if session in self.members and self.members[session].epoch == epoch:
                    self.members[session].revoked = True
            case decisions.EvictSession(session=session, move=move):
                self.at(0.02, lambda: self.evicted(session, move))
            case decisions.RestoreSession(session=session, move=move):
                self.at(0.02, lambda: self.restored(session, move))
            case decisions.GrantGrowth(session=session, request=request):
                asking = self.members.get(session)
                if asking is not None and asking.request == request and asking.epoch is not None:
                    self.at(ITERATION_S, partial(self.iterate, asking, asking.epoch))

    def iterate(self, member: Member, epoch: int) -> None:
        """An iteration of a turn is over."""
        if member.epoch != epoch or member.id not in self.members:
            return
        if not member.grown and self.random.randrange(GROWTH_EVERY) == 0:
            member.grown = True
            member.request += 1
            self.tell(events.GrowthAsked(member.id, member.request, GROWTH_BYTES))
            return
        member.left -= 1
        report = events.IterationsFinished(
            member.id, epoch, 1, ITERATION_S, remaining=member.left, device_share=0.9 / self.lanes
        )
        if member.left <= 0:
            del self.members[member.id]
            self.tell(report, events.LeaseLost(member.id), events.BytesFreed(member.id))
            self.arrive()
        elif member.revoked:
            member.epoch = None
            member.ticket += 1
            self.tell(report, events.TurnReleased(member.id, epoch, member.ticket))
        else:
            self.tell(report)
            self.at(ITERATION_S, lambda: self.iterate(member, epoch))

    def evicted(self, session: str, move: int) -> None:
        if session in self.members:
            member = self.members[session]
            had_turn, member.epoch = member.epoch is not None, None
            self.tell(events.SessionEvicted(session, move, 0.02, PERSISTENT_BYTES))
            if had_turn:
                member.ticket += 1
                self.tell(events.TurnRequested(session, member.ticket))

    def restored(self, session: str, move: int) -> None:
        if session in self.members:
            self.tell(events.SessionRestored(session, move, 0.02))


def percentile_us(values: list[int], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] / 1000


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--policy", nargs="+", default=["fair", "srtf"])
    parser.add_argument("--decisions", type=int, default=20_000, help="measured decisions of each row")
    parser.add_argument("--events", action="store_true", help="a row for each kind of event as well")
    options = parser.parse_args(argv)
    print(f"{'policy':<9}{'sessions':>9}{'lanes':>7}{'decisions':>11}{'p50 µs':>9}{'p99 µs':>9}{'max µs':>9}")
    p99: dict[tuple[str, int, int], float] = {}
    reached = True
    for policy in options.policy:
        for sessions in options.sessions:
            for lanes in options.lanes:
                load = Load(sessions, lanes, policy)
                load.run(options.decisions)
                every = [elapsed for values in load.spent.values() for elapsed in values]
                middle, high = percentile_us(every, 50), percentile_us(every, 99)
                p99[policy, sessions, lanes] = high
                met = True
                if sessions == 1_000:
                    met = middle <= TARGET_P50_US and high <= TARGET_P99_US
                elif sessions == 10_000 and (policy, 1_000, lanes) in p99:
                    met = high <= 2 * p99[policy, 1_000, lanes]
                reached = reached and met
                print(
                    f"{policy:<9}{sessions:>9,}{lanes:>7}{len(every):>11,}{middle:>9.1f}{high:>9.1f}{max(every) / 1000:>9.1f}"
                    + ("" if met else "  above the target"),
                    flush=True,
                )
                if options.events:
                    for name, values in sorted(load.spent.items()):
                        print(
                            f"    {name:<21}{len(values):>11,}{percentile_us(values, 50):>9.1f}{percentile_us(values, 99):>9.1f}"
                            f"{max(values) / 1000:>9.1f}"
                        )
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
