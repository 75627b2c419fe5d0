"""The policies: orders, weights, credit, classes, knowledge; and the bound on waits that all of them keep."""

from __future__ import annotations

import pytest

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.config import Config
from jupyter_salus.backend.core.decisions import GrantTurn, RevokeTurn
from jupyter_salus.backend.core.events import Profile
from jupyter_salus.backend.core.policies.srtf import expected_s

from .world import MIB, World

LONG = Config(max_wait_s=1e6, max_wait_priority_s=1e6)


def _world(policy: str, config: Config = LONG) -> World:
    world = World(config=config, grows=False)
    world.device("host", moves=False, side_by_side=False)
    world.tell(events.PolicyChanged("host", policy))
    return world


def _open(world: World, name: str, *, priority: str = "normal", iteration_s: float = 0.05, **profile: object):
    return world.open(
        name,
        device="host",
        priority=priority,
        iteration_s=iteration_s,
        profile=Profile(persistent_bytes=MIB, ephemeral_bytes=MIB, **profile),  # type: ignore[arg-type]
    )


def _grants(world: World) -> list[str]:
    return [one.session for one in world.decided(GrantTurn) if isinstance(one, GrantTurn)]


def test_fair_gives_device_time_by_weight():
    world = _world("fair")
    for name, priority in [("h", "high"), ("n", "normal"), ("l", "low")]:
        world.want(_open(world, name, priority=priority))
    # Thousands of turns: the invariants are checked once, at the end.
    world.checking = False
    world.run(300)
    world.scheduler.check_invariants()
    used = {name: world.row(name).used_s for name in "hnl"}
    assert used["h"] / used["l"] == pytest.approx(4, rel=0.25)
    assert used["n"] / used["l"] == pytest.approx(2, rel=0.25)


def test_fair_keeps_two_sessions_within_two_quanta_and_an_iteration():
    world = _world("fair")
    for name in "ab":
        world.want(_open(world, name, iteration_s=0.3 if name == "a" else 0.02))
    world.run(30)
    for _ in range(50):
        world.run(0.5)
        assert abs(world.row("a").used_s - world.row("b").used_s) <= 2 * 0.1 + 0.36 + 2.0 * (world.now % 60 < 10)


def test_fair_gives_newcomers_no_debt_and_no_advantage():
    world = _world("fair")
    world.want(_open(world, "old"))
    world.run(100)
    world.want(_open(world, "new"))
    world.run(40)
    old, new = world.row("old").used_s - 100, world.row("new").used_s
    assert old == pytest.approx(20, abs=4)
    assert new == pytest.approx(20, abs=4)


def test_fair_lets_short_cells_go_first():
    world = _world("fair")
    for name in ("a", "b", "c"):
        world.want(_open(world, name))
    world.run(30)
    short = _open(world, "short")
    world.want(short, iterations=3)
    asked = world.now
    world.run(0.3)
    assert world.row("short").turns >= 1
    grants = [
        (at, one) for at, _, decided in world.story for one in decided if isinstance(one, GrantTurn) and at >= asked
    ]
    first = next(at for at, one in grants if one.session == "short")
    assert first - asked <= 0.1 + 0.1


def test_fifo_is_first_come_first_served():
    world = _world("fifo")
    for name in "abc":
        world.want(_open(world, name), iterations=40)
    world.run(10)
    assert _grants(world) == ["a", "b", "c"]


def test_srtf_runs_the_shortest_declared_time_first_and_preempts():
    world = _world("srtf")
    world.want(_open(world, "long", declared_s=100.0), iterations=2000)
    world.run(1)
    world.want(_open(world, "short", declared_s=2.0), iterations=40)
    world.run(0.2)
    assert world.holders("host") == ["short"]
    world.want(_open(world, "middle", declared_s=50.0), iterations=400)
    world.run(3)
    assert world.holders("host") == ["middle"]
    world.run(40)
    assert world.holders("host") == ["long"]


def test_srtf_learns_an_iteration_at_once_and_orders_by_what_is_left():
    world = _world("srtf")
    scheduler = world.scheduler
    for name in ("long", "short"):
        _open(world, name)
    grant = scheduler.handle(events.TurnRequested("long", 1), 0.0)[0]
    assert isinstance(grant, GrantTurn)
    scheduler.handle(events.IterationsFinished("long", grant.epoch, 1, 0.1, remaining=1000), 0.1)
    decided = scheduler.handle(events.TurnRequested("short", 1), 0.2)
    # Unknown so far: first come within the first level, which is before 100 s.
    assert type(decided[0]).__name__ == "RevokeTurn"
    decided = scheduler.handle(events.TurnReleased("long", grant.epoch, 2), 0.3)
    assert isinstance(decided[0], GrantTurn) and decided[0].session == "short"
    epoch = decided[0].epoch
    decided = scheduler.handle(events.IterationsFinished("short", epoch, 1, 0.1, remaining=5000), 0.4)
    # Now known to be longer: the other one comes first again.
    assert type(decided[0]).__name__ == "RevokeTurn"
    world.guests.clear()


def test_srtf_lets_the_next_unknown_one_in_as_soon_as_one_is_known():
    """Also where its share is what was expected, so that nothing else is new."""
    world = World(grows=False)
    world.device()
    world.tell(events.PolicyChanged("gpu", "srtf"))
    scheduler = world.scheduler
    for name in "abcd":
        world.open(name)
    granted = scheduler.handle(events.TurnRequested("a", 1), 0.0)[0]
    assert isinstance(granted, GrantTurn)
    epoch = granted.epoch
    scheduler.handle(events.IterationsFinished("a", epoch, 1, 0.1, remaining=1000, device_share=0.5), 0.1)
    beside = scheduler.handle(events.TurnRequested("b", 1), 0.2)[0]
    assert isinstance(beside, GrantTurn) and beside.side_by_side
    assert isinstance(scheduler.handle(events.TurnRequested("c", 1), 0.3)[0], RevokeTurn)
    scheduler.handle(events.TurnReleased("a", epoch, 2), 0.35)
    assert not [one for one in scheduler.handle(events.TurnRequested("d", 1), 0.4) if isinstance(one, RevokeTurn)]
    known = events.IterationsFinished("b", beside.epoch, 1, 0.1, remaining=900, device_share=0.5)
    assert [one.session for one in scheduler.handle(known, 0.5) if isinstance(one, RevokeTurn)] == ["b"]
    world.guests.clear()


def test_srtf_without_knowledge_is_a_queue_of_levels():
    world = _world("srtf")
    world.want(_open(world, "a"))
    world.want(_open(world, "b"))
    world.run(15)
    assert _grants(world) == ["a"]
    world.run(2)
    assert _grants(world) == ["a", "b"]
    world.run(16)
    # Both are in the second level now: first come, and to its end.
    assert _grants(world) == ["a", "b", "a"]
    world.run(5)
    assert world.holders("host") == ["a"]


def test_srtf_with_kept_durations_ranks_by_what_such_runs_took():
    world = _world("srtf")
    world.want(_open(world, "long", durations_s=(300.0, 310.0)))
    world.run(1)
    world.want(_open(world, "short", durations_s=(2.0, 3.0)))
    world.run(0.3)
    assert world.holders("host") == ["short"]
    # It outlasts all earlier runs: from there on it is one of the unknown.
    world.run(4)
    assert world.row("short").iterations > 20
    world.run(60)
    assert world.holders("host") == ["short"]
    world.run(260)
    assert world.row("long").turns > 1


def test_the_rank_of_earlier_runs_is_the_cost_of_the_best_stop():
    assert expected_s(0.0, ()) is None
    assert expected_s(5.0, (4.0, 5.0)) is None
    assert expected_s(0.0, (10.0,)) == 10.0
    assert expected_s(4.0, (10.0,)) == 6.0
    # One in two ends after 1 s: 2 s of device time for each that ends, less than all the way (1 + 99) / 2.
    assert expected_s(0.0, (1.0, 99.0)) == 2.0
    assert expected_s(1.0, (1.0, 99.0)) == 98.0


def test_pack_ends_nobodys_turn_and_prefers_least_work_among_residents():
    world = _world("pack")
    world.want(_open(world, "first"), iterations=20)
    world.want(_open(world, "long", declared_s=50.0), iterations=20)
    world.want(_open(world, "short", declared_s=5.0), iterations=20)
    world.run(10)
    assert _grants(world) == ["first", "short", "long"]


def test_priority_lets_the_higher_class_go_first_and_end_turns():
    world = _world("priority")
    world.want(_open(world, "low", priority="low"))
    world.run(1)
    world.want(_open(world, "high", priority="high"), iterations=10)
    world.run(0.2)
    assert world.holders("host") == ["high"]
    world.want(_open(world, "normal"), iterations=10)
    world.run(0.2)
    assert world.holders("host") == ["high"]
    world.run(2)
    assert _grants(world) == ["low", "high", "normal", "low"]


def test_a_changed_priority_counts_at_once():
    world = _world("priority")
    world.want(_open(world, "a"))
    world.want(_open(world, "b"))
    world.run(1)
    world.tell(events.PriorityChanged("b", "high"))
    world.run(0.2)
    assert world.holders("host") == ["b"]


def test_a_changed_policy_counts_at_once():
    world = _world("fifo")
    for name in "ab":
        world.want(_open(world, name))
    world.run(2)
    assert world.row("b").turns == 0
    world.tell(events.PolicyChanged("host", "fair"))
    # The second one has short-cell credit left, the first has none.
    world.run(8)
    assert world.row("b").turns > 3
    assert world.device_row("host").policy == "fair"


@pytest.mark.parametrize("policy", ["fair", "fifo", "srtf", "pack", "priority"])
def test_nobody_waits_longer_than_the_bound(policy: str):
    world = _world(policy, Config(max_wait_s=5.0, max_wait_priority_s=5.0))
    for number, priority in enumerate(["high", "normal", "low", "high", "low"]):
        world.want(_open(world, f"s{number}", priority=priority, declared_s=10.0 * (number + 1)))
    world.run(60)
    assert world.longest_wait <= 5.0 + 5 * 0.2
    assert all(world.row(f"s{number}").turns > 5 for number in range(5))


def test_the_starving_get_one_turn_and_then_their_clock_starts_again():
    world = _world("fifo", Config(max_wait_s=5.0))
    for name in "ab":
        world.want(_open(world, name))
    world.run(31)
    assert 4 <= world.row("b").turns <= 7
    assert world.row("a").used_s > 25


def test_priority_has_the_shorter_bound():
    world = _world("priority", Config(max_wait_s=50.0, max_wait_priority_s=5.0))
    world.want(_open(world, "high", priority="high"))
    world.want(_open(world, "low", priority="low"))
    world.run(6)
    assert world.row("low").turns == 1


def test_a_bound_that_a_new_policy_shortens_holds_from_then_on():
    world = _world("fifo", Config(max_wait_s=50.0, max_wait_priority_s=5.0))
    world.want(_open(world, "a"))
    world.want(_open(world, "b"))
    world.run(10)
    world.tell(events.PolicyChanged("host", "priority"))
    world.run(1)
    assert world.row("b").turns == 1
    world.tell(events.PolicyChanged("host", "pack"))
    world.run(20)
    assert world.row("b").turns == 1
