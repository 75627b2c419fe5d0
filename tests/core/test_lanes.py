"""Lanes that adapt: side by side where it pays, joined, widened, merged, split, shrunk."""

from __future__ import annotations

import pytest

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.config import Config
from jupyter_salus.backend.core.decisions import GrantTurn, RevokeTurn
from jupyter_salus.backend.core.events import Profile

from .world import MIB, World


def _known(share: float, persistent: int = 10, ephemeral: int = 100, iteration_s: float = 0.2) -> Profile:
    return Profile(
        persistent_bytes=persistent * MIB,
        ephemeral_bytes=ephemeral * MIB,
        iteration_s=iteration_s,
        device_share=share,
    )


def test_sessions_run_side_by_side_where_their_shares_say_that_it_pays(world: World):
    for name in "abcd":
        world.want(world.open(name, ephemeral=100, profile=_known(0.34)))
    assert len(world.holders()) == 3
    assert len({world.row(name).lane for name in world.holders()}) == 3
    assert "3 run side by side" in world.device_row().lanes_reason


def test_sessions_that_fill_the_device_take_turns_in_one_lane(world: World):
    for name in "abc":
        world.want(world.open(name, ephemeral=100, profile=_known(1.0)))
    assert len(world.holders()) == 1
    world.run(3)
    lanes = world.scheduler.snapshot(world.now).lanes
    assert [set(lane.members) for lane in lanes] == [{"a", "b", "c"}]
    assert lanes[0].ephemeral_bytes == 100 * MIB


def test_one_lane_is_all_that_a_device_gets_when_told_so():
    world = World(config=Config(lanes="one"), grows=False)
    world.device()
    for name in "ab":
        world.want(world.open(name, profile=_known(0.1)))
    assert len(world.holders()) == 1


def test_with_lanes_off_nobody_shares_and_who_does_not_fit_waits():
    world = World(config=Config(lanes="off"), grows=False)
    world.device()
    for name in "abc":
        world.want(world.open(name, persistent=10, ephemeral=400, profile=_known(1.0, ephemeral=400)))
    world.run(0.05)
    assert len(world.holders()) == 2
    assert all(len(lane.members) == 1 for lane in world.scheduler.snapshot(world.now).lanes)


def test_nothing_runs_beside_a_session_whose_iterations_are_unknown_yet(world: World):
    a, b = world.open("a"), world.open("b")
    world.want(a)
    world.want(b)
    assert world.holders() == ["a"]
    assert "until its iterations are known" in world.device_row().lanes_reason


def test_side_by_side_is_tried_and_given_up_where_the_measured_total_does_not_rise():
    world = World(grows=False, seed=3)
    world.device()
    a, b = world.open("a", iteration_s=0.1), world.open("b", iteration_s=0.1)
    world.want(a)
    world.want(b)
    # Beside each other both take more than twice the time.
    seen_beside = 0
    for _ in range(400):
        world.run(0.05)
        both = len(world.holders()) == 2
        seen_beside += both
        a.iteration_s = b.iteration_s = 0.22 if both else 0.1
    assert 0 < seen_beside < 200
    assert len(world.holders()) == 1


def test_side_by_side_stays_where_the_measured_total_rises():
    world = World(grows=False, seed=3)
    world.device()
    for name in "ab":
        world.want(world.open(name, iteration_s=0.1))
    world.run(20)
    assert len(world.holders()) == 2
    world.run(20)
    assert len(world.holders()) == 2


def test_measured_device_time_says_the_share():
    world = World(grows=False)
    world.device()
    for name in ("s0", "s1"):
        world.open(name, profile=Profile())
    scheduler = world.scheduler
    grant = scheduler.handle(events.TurnRequested("s0", 1), 0.0)[0]
    assert isinstance(grant, GrantTurn)
    epoch = grant.epoch
    scheduler.handle(events.TurnRequested("s1", 1), 0.0)
    decided = scheduler.handle(events.IterationsFinished("s0", epoch, 1, 0.1, device_share=0.9), 0.1)
    assert world.row("s0").device_share == pytest.approx(0.9)
    # Two that use nine tenths each: 2 / 1.8 pays.
    assert isinstance(decided[0], GrantTurn) and decided[0].session == "s1"
    second = decided[0].epoch
    for step in range(1, 60):
        now = 0.1 + step * 0.25
        scheduler.handle(events.IterationsFinished("s0", epoch, 1, 0.25, device_share=0.45), now)
        decided = scheduler.handle(events.IterationsFinished("s1", second, 1, 0.25, device_share=0.45), now)
        if decided:
            break
    # Measured, they lose more than their shares explain.
    assert [type(one).__name__ for one in decided] == ["RevokeTurn"]
    scheduler.check_invariants()


def _holders_where_nothing_tells_shares(share: float, sessions: int, seconds: float) -> list[int]:
    """How many ran side by side at each step, where only the time of an iteration can be measured."""
    world = World(grows=False)
    world.device()
    epochs: dict[str, int] = {}
    counts: list[int] = []
    now = 0.0

    def tell(event: events.Event) -> None:
        for decision in world.scheduler.handle(event, now):
            if isinstance(decision, GrantTurn):
                epochs[decision.session] = decision.epoch
            elif isinstance(decision, RevokeTurn):
                revoked.append(decision.session)

    revoked: list[str] = []
    for name in (f"s{number}" for number in range(sessions)):
        world.open(name, profile=Profile())
        tell(events.TurnRequested(name, 1))
    while now < seconds:
        now += 0.01
        counts.append(len(epochs))
        # Beside others it loses a little to the processor in any case.
        slowed = max(1.0, len(epochs) * share) * (1.0 if len(epochs) == 1 else 1.06)
        for name, epoch in list(epochs.items()):
            tell(events.IterationsFinished(name, epoch, 1, 0.01 * slowed))
        while revoked:
            name = revoked.pop()
            tell(events.TurnReleased(name, epochs.pop(name), 2))
        tell(events.DeadlineReached())
        world.scheduler.check_invariants()
    return counts


def test_lanes_open_one_by_one_while_nobody_is_slowed_down_where_nothing_tells_shares():
    assert _holders_where_nothing_tells_shares(0.1, 6, 10.0)[-300:] == [6] * 300


def test_a_slow_down_beside_others_closes_the_lane_that_was_tried_and_it_stays_closed():
    assert _holders_where_nothing_tells_shares(0.6, 4, 20.0)[-500:] == [2] * 500
    assert max(_holders_where_nothing_tells_shares(1.0, 4, 20.0)[-500:]) == 1


def test_a_lane_that_is_too_small_is_widened_and_shrinks_when_the_large_member_leaves(host: World):
    small = host.open("small", device="host", ephemeral=50)
    large = host.open("large", device="host", ephemeral=700)
    host.want(small)
    host.want(large)
    host.run(3)
    lanes = host.scheduler.snapshot(host.now).lanes
    assert [lane.ephemeral_bytes for lane in lanes] == [700 * MIB]
    host.crash(large)
    host.run(1)
    assert [lane.ephemeral_bytes for lane in host.scheduler.snapshot(host.now).lanes] == [50 * MIB]


def test_a_learned_need_that_falls_shrinks_the_lane_after_two_windows(host: World):
    a = host.open("a", device="host", ephemeral=500)
    host.want(a)
    window = host.config.memory_window_s
    a.measured = True
    host.tell(events.MemoryMeasured("a", None, 500 * MIB))
    for _ in range(6):
        host.run(window / 2)
        host.tell(events.MemoryMeasured("a", None, 20 * MIB))
    assert host.row("a").ephemeral_bytes == 20 * MIB
    assert host.scheduler.snapshot(host.now).lanes[0].ephemeral_bytes == 20 * MIB
    assert host.row("a").peak_ephemeral_bytes == 500 * MIB


def test_lanes_merge_for_one_that_needs_the_room_and_split_again(world: World):
    for name in "ab":
        world.want(world.open(name, ephemeral=200, profile=_known(0.4, ephemeral=200)))
    assert len(world.holders()) == 2
    big = world.open("big", ephemeral=900, profile=_known(0.4, ephemeral=900))
    world.want(big, iterations=3)
    world.run(3)
    assert world.row("big").turns > 0
    world.run(3)
    assert sorted(world.holders()) == ["a", "b"]


def test_waiters_are_admitted_in_order_while_there_is_room_for_the_largest_lane(world: World):
    world.want(world.open("a", persistent=100, ephemeral=500, profile=_known(1.0, 100, 500)))
    world.want(world.open("b", persistent=200, ephemeral=100, profile=_known(1.0, 200, 100)))
    world.want(world.open("c", persistent=300, ephemeral=100, profile=_known(1.0, 300, 100)))
    assert [world.row(name).residency for name in "abc"] == ["resident", "resident", "absent"]


def test_all_of_many_models_are_resident_where_one_lane_holds_the_largest(world: World):
    for number in range(30):
        world.want(world.open(f"m{number}", persistent=20, ephemeral=10 * number, profile=_known(1.0, 20, 10 * number)))
    assert all(world.row(f"m{number}").residency == "resident" for number in range(30))


def test_the_room_of_the_first_one_is_kept_while_quanta_end():
    world = World(grows=False)
    world.device()
    for name in "abc":
        world.want(
            world.open(name, ephemeral=300, iteration_s=0.05, profile=_known(0.33, ephemeral=300, iteration_s=0.05))
        )
    world.run(1)
    world.want(
        world.open("big", ephemeral=900, iteration_s=0.05, profile=_known(0.33, ephemeral=900, iteration_s=0.05))
    )
    world.run(1.0)
    assert world.row("big").turns > 0


def test_a_host_device_runs_one_at_a_time_and_says_so(host: World):
    for name in "abc":
        host.want(host.open(name, device="host", profile=_known(0.1)))
    host.run(2)
    assert len(host.holders("host")) == 1
    assert host.device_row("host").lanes_reason == "one at a time on this device"


def test_a_device_that_stops_side_by_side_goes_back_to_one_lane(world: World):
    for name in "ab":
        world.want(world.open(name, profile=_known(0.3)))
    assert len(world.holders()) == 2
    world.device(side_by_side=False)
    world.run(1)
    assert len(world.holders()) == 1
