"""Random lives: the invariants hold at each step, nothing raises that shouldn't, and nobody waits beyond the bound."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.find import fits
from jupyter_salus.backend.core.policies import NAMES
from jupyter_salus.errors import OverLimit

from .world import MIB, Guest, World

SIZES = [(10, 50), (100, 300), (300, 600), (5, 900), (200, 10), (50, 50)]
PRIORITIES = ["high", "normal", "low"]
DEVICES = ("gpu", "gpu2")
USERS = ("u", "v")


class Lives(RuleBasedStateMachine):
    """Sessions come, work, grow, are moved, crash; messages come late; people ask for things; devices change."""

    @initialize(
        seed=st.integers(0, 2**32),
        policy=st.sampled_from(NAMES),
        side_by_side=st.booleans(),
        fails=st.sampled_from([0.0, 0.2]),
        late=st.sampled_from([0.0, 0.2, 2.0]),
        grows=st.booleans(),
    )
    def begin(self, seed: int, policy: str, side_by_side: bool, fails: float, late: float, grows: bool) -> None:
        self.world = World(seed, move_fails=fails, move_late_s=late, grows=grows)
        for device in DEVICES:
            self.world.device(device, side_by_side=side_by_side, kind="alike")
            self.world.tell(events.PolicyChanged(device, policy))
        self.count = 0

    def some(self, index: int) -> Guest:
        guests = list(self.world.guests.values())
        return guests[index % len(guests)]

    def anybody(self) -> bool:
        return bool(self.world.guests)

    @rule(
        size=st.sampled_from(SIZES),
        wrong=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        iteration_s=st.sampled_from([0.05, 0.2, 0.7]),
        evictable=st.booleans(),
        priority=st.sampled_from(PRIORITIES),
        declared=st.sampled_from([None, 3.0, 50.0]),
        durations=st.sampled_from([(), (1.0, 10.0)]),
        user=st.sampled_from(USERS),
        devices=st.sampled_from([(), (), ("gpu2",), DEVICES]),
        roams=st.booleans(),
    )
    def open(self, size, wrong, iteration_s, evictable, priority, declared, durations, user, devices, roams) -> None:
        if len(self.world.guests) >= 12:
            return
        self.count += 1
        persistent, ephemeral = size
        profile = events.Profile(
            persistent_bytes=int(persistent * MIB * wrong) or None,
            ephemeral_bytes=int(ephemeral * MIB * wrong) or None,
            declared_s=declared,
            durations_s=durations,
        )
        try:
            self.world.open(
                f"s{self.count}",
                device=devices[0] if devices else "gpu",
                persistent=persistent,
                ephemeral=ephemeral,
                iteration_s=iteration_s,
                evictable=evictable,
                priority=priority,
                profile=profile,
                user=user,
                devices=devices if len(devices) > 1 else (),
                roams=roams,
            )
        except OverLimit:
            del self.world.guests[f"s{self.count}"]

    @precondition(anybody)
    @rule(index=st.integers(0, 11), iterations=st.sampled_from([1, 3, 20, 1000]))
    def cell(self, index: int, iterations: int) -> None:
        guest = self.some(index)
        if not guest.wanting and guest.epoch is None and not guest.asking:
            self.world.want(guest, iterations)

    @precondition(anybody)
    @rule(index=st.integers(0, 11), freed_after_s=st.sampled_from([0.0, 0.1, 7.0]), restarts=st.booleans())
    def crash(self, index: int, freed_after_s: float, restarts: bool) -> None:
        self.world.crash(self.some(index), freed_after_s, restarts=restarts)

    @rule(
        user=st.sampled_from(USERS),
        weight=st.sampled_from([1.0, 3.5]),
        max_priority=st.sampled_from(PRIORITIES),
        max_sessions=st.sampled_from([None, 4]),
        persistent=st.sampled_from([None, 0, 200, 700]),
        host=st.sampled_from([None, 0, 300]),
    )
    def limits(self, user, weight, max_priority, max_sessions, persistent, host) -> None:
        persistent_bytes, host_bytes = (None if value is None else value * MIB for value in (persistent, host))
        self.world.tell(events.UserLimits(user, weight, max_priority, max_sessions, persistent_bytes, host_bytes))

    @rule(device=st.sampled_from(DEVICES), draining=st.booleans())
    def drain(self, device: str, draining: bool) -> None:
        self.world.tell(events.DrainAsked(device, draining))

    @precondition(anybody)
    @rule(index=st.integers(0, 11), evictable=st.booleans())
    def movable(self, index: int, evictable: bool) -> None:
        guest = self.some(index)
        if not guest.out and self.world.row(guest.id).residency in ("absent", "resident"):
            guest.evictable = evictable
            self.world.tell(events.EvictableChanged(guest.id, evictable))

    @precondition(anybody)
    @rule(index=st.integers(0, 11))
    def interrupt(self, index: int) -> None:
        guest = self.some(index)
        if guest.wanting and not guest.asking:
            guest.wanting, guest.iterations_left = False, 0
            self.world.tell(events.TurnWithdrawn(guest.id, guest.ticket))

    @precondition(anybody)
    @rule(index=st.integers(0, 11))
    def late_messages(self, index: int) -> None:
        guest = self.some(index)
        self.world.tell(events.TurnReleased(guest.id, 0, 5))
        self.world.tell(events.IterationsFinished(guest.id, 0, 1, 0.1))
        self.world.tell(events.SessionEvicted(guest.id, 0, 0.1, 5))
        self.world.tell(events.RestoreFailed(guest.id, 0, "late"))
        self.world.tell(events.TurnWithdrawn(guest.id, -1))

    @precondition(anybody)
    @rule(index=st.integers(0, 11), what=st.sampled_from(["yield", "evict", "restore", "pin", "unpin", *PRIORITIES]))
    def ask(self, index: int, what: str) -> None:
        id = self.some(index).id
        if what == "yield":
            self.world.try_to(events.YieldAsked(id))
        elif what == "evict":
            self.world.try_to(events.EvictAsked(id))
        elif what == "restore":
            self.world.try_to(events.RestoreAsked(id))
        elif what in PRIORITIES:
            self.world.try_to(events.PriorityChanged(id, what))
        else:
            self.world.tell(events.PinChanged(id, what == "pin"))

    @rule(policy=st.sampled_from(NAMES), device=st.sampled_from(DEVICES))
    def policy(self, policy: str, device: str) -> None:
        self.world.tell(events.PolicyChanged(device, policy))

    @precondition(anybody)
    @rule(index=st.integers(0, 11), factor=st.sampled_from([None, 1.0, 1.5]), ephemeral=st.booleans())
    def measure(self, index: int, factor: float | None, ephemeral: bool) -> None:
        guest = self.some(index)
        persistent = None if factor is None else int(guest.persistent * factor)
        on = guest.devices[-1] if guest.devices else ""
        self.world.tell(events.MemoryMeasured(guest.id, persistent, guest.ephemeral if ephemeral else None, on))

    @rule(device=st.sampled_from(DEVICES), foreign=st.sampled_from([0, 100, 300]), side_by_side=st.booleans())
    def device(self, device: str, foreign: int, side_by_side: bool) -> None:
        self.world.device(device, foreign_bytes=foreign * MIB, side_by_side=side_by_side, kind="alike")

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.5, 3.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.world.run(seconds)
        self.world.scheduler.snapshot(self.world.now)


Lives.TestCase.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TestLives = pytest.mark.slow(Lives.TestCase)


def _live(seed: int) -> World:
    """Sessions that all fit alone and can be moved, working for minutes under one policy."""
    chance = random.Random(seed)
    world = World(seed, move_late_s=chance.choice([0, 0.3]), grows=chance.random() < 0.5, checking=seed % 4 == 0)
    world.device(side_by_side=chance.random() < 0.7)
    world.tell(events.PolicyChanged("gpu", NAMES[seed % len(NAMES)]))
    for number in range(3 + seed % 8):
        persistent, ephemeral = chance.choice(SIZES)
        wrong = chance.choice([0.5, 1.0, 1.0, 2.0])
        profile = events.Profile(
            persistent_bytes=int(persistent * MIB * wrong),
            ephemeral_bytes=int(ephemeral * MIB * wrong),
            declared_s=chance.choice([None, 5.0, 100.0]),
        )
        guest = world.open(
            f"s{number}",
            persistent=persistent,
            ephemeral=ephemeral,
            iteration_s=chance.choice([0.05, 0.2, 0.7]),
            priority=chance.choice(PRIORITIES),
            profile=profile,
        )
        world.run(chance.choice([0, 0.1, 2]))
        world.want(guest)
    return world


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_nobody_waits_longer_than_the_bound_whatever_the_sizes(seed: int):
    world = _live(seed)
    device = world.scheduler._state.devices["gpu"]

    def works() -> None:
        if not device.holders and not device.moving:
            assert not any(fits(device, session) for session in device.ready), "idle while a resident session has work"

    world.on_event = works
    world.run(120)
    waits = [world.now - guest.wanted_at for guest in world.guests.values() if guest.wanting]
    # Each session that is due before may take a turn, the iteration in flight included, and its moves.
    turn_s = 0.7 * 1.2 + 2 * 0.4 + 0.1
    assert max([world.longest_wait, *waits]) <= world.config.max_wait_s + 2 + len(world.guests) * turn_s


@pytest.mark.parametrize("seed", [3, 7])
def test_the_same_events_at_the_same_times_give_the_same_decisions(seed: int):
    first, second = _live(seed), _live(seed)
    for world in (first, second):
        world.run(30)
    assert first.story == second.story
    assert first.scheduler.snapshot(first.now) == second.scheduler.snapshot(second.now)
