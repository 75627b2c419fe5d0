"""Moves: who goes out for whom, what comes back, and what happens when a move doesn't."""

from __future__ import annotations

import pytest

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.config import Config
from jupyter_salus.backend.core.decisions import EvictSession, RestoreSession
from jupyter_salus.errors import NotPossible

from .world import MIB, World


def _evicted(world: World) -> list[str]:
    return [one.session for one in world.decided(EvictSession) if isinstance(one, EvictSession)]


def _idle(world: World, name: str, persistent: int) -> None:
    """A session that ran once and holds its model."""
    world.want(world.open(name, persistent=persistent), iterations=1)
    world.run(1)
    assert world.row(name).state == "holding"


def test_the_smallest_idle_session_that_is_enough_goes_out(world: World):
    for name, persistent in [("tiny", 50), ("small", 200), ("large", 400)]:
        _idle(world, name, persistent)
    world.want(world.open("new", persistent=300, ephemeral=200))
    world.run(1)
    assert _evicted(world) == ["small"]
    assert world.holders() == ["new"]
    assert world.row("small").state == "evicted"


def test_the_largest_go_first_where_none_alone_is_enough(world: World):
    for name, persistent in [("tiny", 100), ("small", 200), ("large", 400)]:
        _idle(world, name, persistent)
    world.want(world.open("new", persistent=500, ephemeral=350))
    world.run(1)
    assert sorted(_evicted(world)) == ["large", "small"]


def test_pinned_sessions_go_last(world: World):
    _idle(world, "pinned", 400)
    _idle(world, "other", 450)
    world.tell(events.PinChanged("pinned", True))
    world.want(world.open("new", persistent=300, ephemeral=200))
    world.run(1)
    assert _evicted(world) == ["other"]
    world.crash(world.guests["other"])
    world.run(1)
    world.want(world.open("newer", persistent=500, ephemeral=200))
    world.run(5)
    assert "pinned" in _evicted(world)


def test_bytes_are_not_given_before_the_outcome_is_known(world: World):
    world.move_late_s = 5.0
    _idle(world, "a", 800)
    world.want(world.open("b", persistent=500, ephemeral=100))
    assert world.row("a").state == "evicting"
    assert world.row("b").reason is not None and world.row("b").reason.code == "making_room"
    assert world.holders() == []
    world.run(6)
    assert world.holders() == ["b"]


def test_an_evicted_session_comes_back_when_it_wants_the_device(world: World):
    _idle(world, "a", 800)
    b = world.open("b", persistent=500, ephemeral=100)
    world.want(b, iterations=1)
    world.run(2)
    world.want(world.guests["a"], iterations=1)
    assert world.row("a").state in ("waiting", "restoring")
    world.run(2)
    assert world.row("a").turns == 2
    assert world.row("a").evictions == 1
    assert len(world.decided(RestoreSession)) == 1


def test_a_refused_eviction_changes_nothing_and_another_victim_is_chosen(world: World):
    _idle(world, "a", 300)
    _idle(world, "b", 400)
    world.move_fails = 1.0
    world.want(world.open("new", persistent=400, ephemeral=100))
    world.run(0.01)
    world.move_fails = 0.0
    world.run(1)
    assert len(_evicted(world)) == 2
    assert world.holders() == ["new"]


def test_a_failed_return_is_tried_again_later(world: World):
    _idle(world, "a", 800)
    world.want(world.open("b", persistent=500, ephemeral=100), iterations=1)
    world.run(2)
    world.move_fails = 1.0
    world.want(world.guests["a"])
    world.run(0.02)
    # The eviction of b and the first return fail.
    world.run(0.5)
    reason = world.row("a").reason
    assert reason is not None
    world.move_fails = 0.0
    world.run(10)
    assert world.holders() == ["a"]


def test_a_failed_return_says_so(world: World):
    _idle(world, "a", 100)
    world.tell(events.EvictAsked("a"))
    world.run(1)
    world.move_fails = 1.0
    world.want(world.guests["a"])
    world.run(0.2)
    reason = world.row("a").reason
    assert reason is not None and reason.code == "failed_return"
    world.move_fails = 0.0
    world.run(5)
    assert world.holders() == ["a"]


def test_waiting_sessions_go_out_last_in_order_first_for_one_that_is_to_run(world: World):
    world.tell(events.PolicyChanged("gpu", "srtf"))
    declared = [("a", 100.0), ("b", 50.0), ("c", 20.0)]
    profiles = {name: events.Profile(200 * MIB, 300 * MIB, declared_s=seconds) for name, seconds in declared}
    for name, profile in profiles.items():
        world.want(world.open(name, persistent=200, ephemeral=300, profile=profile))
        world.run(0.5)
    world.want(
        world.open("d", persistent=100, ephemeral=500, profile=events.Profile(100 * MIB, 500 * MIB, declared_s=1.0))
    )
    world.run(1.5)
    assert _evicted(world)[0] == "a"
    assert world.holders() == ["d"]


def test_who_came_back_stays_for_a_while():
    # Without short-cell credit and starvation, which are beyond this rule.
    world = World(config=Config(credit_s=0.0, max_wait_s=1e6), grows=False)
    world.device()
    for name in "ab":
        world.want(world.open(name, persistent=400, ephemeral=300))
    world.run(200)
    back: dict[str, float] = {}
    for at, event, decided in world.story:
        if isinstance(event, events.SessionRestored):
            back[event.session] = at
        for one in decided:
            if isinstance(one, EvictSession) and one.session in back:
                assert at - back[one.session] >= 4.99
    kinds = (events.SessionEvicted, events.SessionRestored)
    moves_s = sum(event.seconds for _, event, _ in world.story if isinstance(event, kinds))
    assert moves_s < 0.08 * world.now
    assert world.row("a").turns > 1 and world.row("b").turns > 1


def test_a_move_can_be_asked_for(world: World):
    _idle(world, "a", 100)
    world.tell(events.EvictAsked("a"))
    assert world.row("a").state == "evicting"
    with pytest.raises(NotPossible, match="cannot move session a out: it is evicting"):
        world.tell(events.EvictAsked("a"))
    world.run(1)
    assert world.row("a").state == "evicted"
    world.tell(events.RestoreAsked("a"))
    assert world.row("a").state == "restoring"
    world.run(1)
    assert world.row("a").state == "holding"


def test_a_running_session_goes_out_at_its_boundary_when_asked(world: World):
    a = world.open("a", persistent=100)
    world.want(a)
    world.run(0.3)
    world.tell(events.EvictAsked("a"))
    world.tell(events.EvictAsked("a"))
    assert a.revoked
    world.run(0.4)
    assert _evicted(world) == ["a"]
    world.run(3)
    # It wants the device still, so it comes back.
    assert world.holders() == ["a"]


def test_moves_that_a_device_cannot_make_are_refused(host: World, world: World):
    host.open("a", device="host")
    with pytest.raises(NotPossible, match="cannot move session a out: device host can't move it"):
        host.tell(events.EvictAsked("a"))
    world.open("b", evictable=False)
    with pytest.raises(NotPossible):
        world.tell(events.EvictAsked("b"))
    with pytest.raises(NotPossible, match="cannot bring session b back: it is absent"):
        world.tell(events.RestoreAsked("b"))


def test_a_return_that_has_no_room_is_refused_with_the_figures(world: World):
    _idle(world, "a", 800)
    world.tell(events.EvictAsked("a"))
    world.run(1)
    world.want(world.open("b", persistent=500, ephemeral=100))
    with pytest.raises(NotPossible, match="cannot bring session a back: it needs"):
        world.tell(events.RestoreAsked("a"))


def test_a_session_that_dies_while_it_moves_is_forgotten(world: World):
    world.move_late_s = 2.0
    _idle(world, "a", 800)
    b = world.open("b", persistent=500, ephemeral=100)
    world.want(b)
    world.crash(world.guests["a"])
    world.run(3)
    assert world.holders() == ["b"]
    world.move_late_s = 0.0
    _idle_again = world.open("c", persistent=700, ephemeral=100)
    world.crash(b)
    world.want(_idle_again, iterations=1)
    world.run(2)
    world.tell(events.EvictAsked("c"))
    world.run(1)
    world.move_late_s = 2.0
    world.tell(events.RestoreAsked("c"))
    world.crash(world.guests["c"])
    world.run(3)
    assert world.device_row().free_bytes == 1000 * MIB


def test_an_evicted_session_that_dies_leaves_nothing_behind(world: World):
    _idle(world, "a", 100)
    world.tell(events.EvictAsked("a"))
    world.run(1)
    world.crash(world.guests["a"])
    world.run(1)
    assert world.device_row().free_bytes == 1000 * MIB


def test_what_stays_on_the_device_after_a_move_still_counts(world: World):
    _idle(world, "a", 100)
    decided = world.scheduler.handle(events.EvictAsked("a"), world.now)
    move = next(one.move for one in decided if isinstance(one, EvictSession))
    world.scheduler.handle(events.SessionEvicted("a", move, 0.1, 95 * MIB), world.now)
    assert world.device_row().free_bytes == 995 * MIB
    world.guests["a"].out.add("gpu")
    world.want(world.guests["a"])
    world.run(1)
    assert world.device_row().free_bytes == 890 * MIB


def test_a_peer_that_is_gone_is_waited_for_before_others_are_moved(world: World):
    _idle(world, "idle", 400)
    _idle(world, "gone", 400)
    world.crash(world.guests["gone"], freed_after_s=2)
    world.want(world.open("new", persistent=300, ephemeral=100))
    world.run(1)
    assert _evicted(world) == []
    world.run(2)
    assert world.holders() == ["new"]


def test_a_peer_that_is_gone_but_holds_on_is_not_waited_for(world: World):
    _idle(world, "idle", 400)
    _idle(world, "gone", 400)
    world.crash(world.guests["gone"], freed_after_s=60)
    world.want(world.open("new", persistent=300, ephemeral=100))
    world.run(7)
    assert _evicted(world) == ["idle"]
    assert world.holders() == ["new"]
    world.run(60)


def test_silent_requests_move_only_idle_ones(world: World):
    for name in "ab":
        world.want(world.open(name, persistent=400, ephemeral=100))
    world.run(1)
    world.open("c", persistent=300, ephemeral=100)
    world.guests["c"].wanting, world.guests["c"].ticket = True, 1
    world.tell(events.TurnRequested("c", 1, silent=True))
    world.run(5)
    assert _evicted(world) == []


def test_while_moves_are_under_way_a_resident_session_runs_that_fits_beside(world: World):
    world.move_late_s = 4.0
    _idle(world, "idle", 500)
    world.want(world.open("small", persistent=10, ephemeral=10), iterations=1)
    world.run(1)
    world.want(world.open("big", persistent=500, ephemeral=300))
    world.want(world.guests["small"])
    assert world.row("idle").state == "evicting"
    assert world.holders() == ["small"]
    world.run(8)
    assert world.row("big").turns > 0


def test_late_moves_do_not_keep_the_device_idle(world: World):
    world.move_late_s = 300.0
    world.seed = 5
    _idle(world, "idle", 500)
    world.want(world.open("small", persistent=10, ephemeral=400), iterations=1)
    world.run(1)
    world.want(world.open("big", persistent=500, ephemeral=490))
    world.want(world.guests["small"])
    if world.row("idle").state == "evicting":
        assert world.holders() == []
        world.run(3)
        assert world.holders() == ["small"]
