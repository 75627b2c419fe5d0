"""A long life: many sessions on several devices for hours of a virtual clock, with every invariant checked after every event.

`python -m benchmarks.longrun` plays 1,000 sessions on 8 devices for 10 hours and prints what happened. Sessions come, run cells,
ask for memory in mid-iteration, idle, crash, restart; some need several devices at once; messages and moves come late, twice or
not at all; what is known of memory beforehand is wrong by two times; users have limits; devices are drained. It ends with an
error if an invariant doesn't hold. Far more is asked for than the devices can do, and some sessions can't be moved: what a wait
lasts here shows that, not the bound on waits.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from jupyter_salus.backend.core import decisions, events
from jupyter_salus.backend.core.config import Config
from jupyter_salus.backend.core.policies import NAMES
from jupyter_salus.errors import NotPossible, OverLimit, PeerError
from tests.core.world import MIB, Guest, World

GIB_MIB = 1024
USERS = 40
#: Seconds between a session's cells, between crashes of one session, and between drains of some device, on average.
THINKS_S, CRASHES_S, DRAINS_S = 3600.0, 3 * 3600.0, 3600.0
#: Part of the sessions that need two devices, and of the messages that come again when they are old.
SEVERAL, LATE = 0.03, 0.05
#: Iterations last a minute here. With the usual quantum (0.1 s) and look at starving sessions (each second) nine in ten events
#: would be deadlines at which nothing changes.
CONFIG = Config(quantum_s=5.0, retry_s=10.0)
#: Part of the stops in mid-iteration that succeed.
STOPS = 0.8


@dataclass
class Life(World):
    """The world of the tests, kept busy by itself."""

    counts: Counter[str] = field(default_factory=Counter)
    handle_s: list[float] = field(default_factory=list)
    #: All invariants are checked after one event in so many.
    every: int = 1

    def begin(self, sessions: int, devices: int) -> None:
        """Devices, users, and the first sessions, which come over twenty minutes."""
        self.names = [f"gpu:{number}" for number in range(devices)]
        for number, name in enumerate(self.names):
            self.device(name, 24 * GIB_MIB * MIB, reserve_bytes=GIB_MIB * MIB, kind="alike")
            self.tell(events.PolicyChanged(name, NAMES[number % len(NAMES)]))
        for number in range(0, USERS, 4):
            self.tell(events.UserLimits(f"user{number}", 2.0, "normal", 60, 40 * GIB_MIB * MIB, 60 * GIB_MIB * MIB))
        handle = self.scheduler.handle

        def timed(event: events.Event, now: float) -> list[decisions.Decision]:
            began = time.thread_time()
            decided = handle(event, now)
            self.handle_s.append(time.thread_time() - began)
            self.counts.update([type(event).__name__, *(f"→ {type(one).__name__}" for one in decided)])
            return decided

        self.scheduler.handle = timed  # type: ignore[method-assign]
        for number in range(sessions):
            self.at(self.random.uniform(0, 1200), partial(self.arrive, f"s{number}"))
        self.at(DRAINS_S, self.drain)

    def tell(self, event: events.Event) -> None:
        self.checking = len(self.handle_s) % self.every == 0
        try:
            super().tell(event)
        except NotPossible:
            if not isinstance(event, events.GrowthAsked):
                raise
            # It answered no attempt to stop it, and its turn is over in the books: it gets no more.
            guest = self.guests[event.session]
            self.counts["asked without a turn"] += 1
            guest.asking = 0
            self.boundary(guest)
        self.story.clear()

    def carry_out(self, decision: decisions.Decision) -> None:
        super().carry_out(decision)
        if isinstance(decision, decisions.StopTurn) and self.random.random() < STOPS:
            guest = self.guests[decision.session]
            guest.appointment += 1
            guest.epoch, guest.revoked = None, False
            self._want(guest)
            self.tell(events.TurnReleased(guest.id, decision.epoch, guest.ticket, guest.mapped))

    def arrive(self, name: str) -> None:
        """A kernel starts."""
        chance = self.random
        wrong = chance.choice([0.5, 1.0, 2.0])
        persistent, ephemeral = (
            int(chance.lognormvariate(6.5, 1.0)) % 8_000,
            int(chance.lognormvariate(7.3, 0.9)) % 14_000,
        )
        devices = tuple(chance.sample(self.names, 2)) if chance.random() < SEVERAL and len(self.names) > 1 else ()
        try:
            guest = self.open(
                name,
                device=chance.choice(self.names),
                persistent=persistent,
                ephemeral=ephemeral,
                iteration_s=min(max(chance.lognormvariate(4.0, 0.7), 5.0), 240.0),
                evictable=chance.random() < 0.95,
                priority=chance.choice(["high", "normal", "normal", "low"]),
                profile=events.Profile(int(persistent * MIB * wrong), int(ephemeral * MIB * wrong)),
                user=f"user{chance.randrange(USERS)}",
                devices=devices,
                roams=chance.random() < 0.5,
            )
        except OverLimit:
            del self.guests[name]
            self.counts["sessions refused"] += 1
            self.at(self.now + 60.0, lambda: self.arrive(name))
            return
        self.think(guest)
        self.at(self.now + chance.expovariate(1 / CRASHES_S), lambda: self.end(guest))

    def think(self, guest: Guest) -> None:
        """Somebody reads what came out, and runs the next cell."""

        def next_cell() -> None:
            if guest.alive and guest.epoch is None and not guest.wanting and not guest.asking:
                self.want(guest, self.random.randint(1, 8))

        self.at(self.now + self.random.expovariate(1 / THINKS_S), next_cell)

    def release(self, guest: Guest, *, more: bool) -> None:
        epoch = guest.epoch
        super().release(guest, more=more)
        if not more and guest.alive:
            self.think(guest)
        if self.random.random() < LATE and guest.alive and epoch is not None:
            # The same said again, by then about a turn that is over.
            self.counts["late messages"] += 3
            self.tell(events.TurnReleased(guest.id, epoch, 1))
            self.tell(events.IterationsFinished(guest.id, epoch, 1, 0.1))
            self.tell(events.SessionEvicted(guest.id, 0, 1.0, 5))

    def end(self, guest: Guest) -> None:
        """The kernel crashes, wherever it is; another one starts, perhaps the same again."""
        if not guest.alive:
            return
        restarts = self.random.random() < 0.5
        self.counts["crashes"] += 1
        self.crash(guest, self.random.choice([0.0, 0.5, 20.0]), restarts=restarts)
        self.at(
            self.now + self.random.uniform(0.5, 30.0), lambda: self.arrive(guest.id if restarts else f"{guest.id}'")
        )
        people = list(self.guests.values())
        one = self.random.choice(people) if people else None
        if one is not None:
            asked = self.random.choice([events.EvictAsked, events.RestoreAsked, events.YieldAsked])
            try:
                self.tell(asked(one.id))
            except PeerError:
                self.counts["wishes refused"] += 1

    def drain(self) -> None:
        """Some device is maintained for ten minutes."""
        name = self.random.choice(self.names)
        self.counts["drains"] += 1
        self.tell(events.DrainAsked(name, reason="maintenance"))
        self.at(self.now + 600.0, lambda: self.tell(events.DrainAsked(name, draining=False)))
        self.at(self.now + DRAINS_S, self.drain)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="check all invariants after one event in so many")
    options = parser.parse_args(argv)
    life = Life(options.seed, CONFIG, move_fails=0.1, move_late_s=20.0, every=options.every)
    life.begin(options.sessions, options.devices)
    began = time.perf_counter()
    for quarter in range(round(options.hours * 4)):
        life.run(900.0)
        took = time.perf_counter() - began
        print(f"{(quarter + 1) / 4:6.2f} h: {len(life.handle_s):,} events, {took:,.0f} s", file=sys.stderr, flush=True)
    rows = life.scheduler.snapshot(life.now).sessions
    waits = [life.now - row.waiting_since for row in rows if row.waiting_since is not None and row.turn == "waiting"]
    spent = sorted(life.handle_s)
    figures = {
        "sessions open": len(rows),
        "sessions that came": sum(count for name, count in life.counts.items() if name == "SessionOpened"),
        "events": len(spent),
        "of them followed by all invariants": len(spent) // options.every,
        "iterations": life.counts["IterationsFinished"],
        "turns given": life.counts["→ GrantTurn"],
        "growth asked": life.counts["GrowthAsked"],
        "growth refused": life.counts["→ RefuseGrowth"],
        "moves out": life.counts["→ EvictSession"],
        "of them refused": life.counts["EvictionFailed"],
        "returns": life.counts["→ RestoreSession"],
        "stops in mid-iteration": life.counts["→ StopTurn"],
        "of them failed": life.counts["RestoreFailed"],
        **{
            name: life.counts[name]
            for name in ("crashes", "late messages", "drains", "sessions refused", "wishes refused")
        },
        "events ignored as late": sum(life.scheduler.ignored.values()),
        "longest wait for a turn, s": round(life.longest_wait, 1),
        "longest wait now, s": round(max(waits, default=0.0), 1),
        "decision p50, µs": round(spent[len(spent) // 2] * 1e6, 1),
        "decision p99, µs": round(spent[int(len(spent) * 0.99)] * 1e6, 1),
        "seconds of the run": round(time.perf_counter() - began),
    }
    for name, value in figures.items():
        print(f"{name:<42}{value:>14,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
