"""Corners: what happens seldom, and must be right all the same."""

from __future__ import annotations

import pytest

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.config import Config
from jupyter_salus.backend.core.decisions import EvictSession, GrantTurn, RevokeTurn
from jupyter_salus.backend.core.events import Profile

from .world import MIB, World


def test_the_invariants_name_what_does_not_hold(world: World):
    world.want(world.open("a"))
    device = world.scheduler._state.devices["gpu"]
    device.ledger.held += 1
    with pytest.raises(AssertionError, match="gpu: sessions hold 10485760, the ledger says 10485761"):
        world.scheduler.check_invariants()
    device.ledger.held -= 1


def test_places_change_only_when_bytes_do(world: World):
    a = world.open("a")
    before = world.scheduler.changes
    world.tell(events.CellStarted("a"))
    assert world.scheduler.changes == before
    world.want(a)
    assert world.scheduler.changes > before
    places = world.scheduler.places()
    assert "a" in repr(places)


def test_an_old_starvation_deadline_finds_a_longer_bound(host: World):
    host.tell(events.PolicyChanged("host", "priority"))
    for name in "ab":
        host.want(host.open(name, device="host", iteration_s=0.05))
    host.tell(events.PolicyChanged("host", "fifo"))
    host.run(host.config.max_wait_priority_s + 1)
    assert host.row("b").turns == 0
    host.run(host.config.max_wait_s)
    assert host.row("b").turns > 0


def test_a_session_that_goes_on_over_capacity_keeps_its_turn(host: World):
    a = host.open("a", device="host", profile=Profile())
    a.measured = True
    host.want(a)
    host.tell(events.MemoryMeasured("a", 1500 * MIB, None))
    host.want(host.open("big", device="host", persistent=700, ephemeral=10))
    host.run(5)
    assert not host.decided(RevokeTurn)
    assert host.holders("host") == ["a"]
    # It lets small ones run first all the same.
    host.tell(events.MemoryMeasured("a", 1100 * MIB, None))
    host.run(1)
    assert host.holders("host") == ["a"]


def test_over_capacity_is_for_one_only(host: World):
    host.want(host.open("idle", device="host", persistent=700, ephemeral=10), iterations=1)
    host.run(1)
    host.want(host.open("new", device="host", persistent=100, ephemeral=500), iterations=5)
    host.run(5)
    host.want(host.guests["idle"], iterations=1)
    host.run(1)
    assert host.row("idle").turns == 2


def test_host_bound_sessions_are_shown_so(world: World):
    a = world.open("a")
    world.want(a)
    assert a.epoch is not None
    world.tell(events.IterationsFinished("a", a.epoch, 0, 0.0, host_bound=True))
    assert world.row("a").host_bound is True


def test_srtf_runs_one_iteration_to_learn_it(world: World):
    world.tell(events.PolicyChanged("gpu", "srtf"))
    scheduler = world.scheduler
    for name in "ab":
        world.open(name, profile=Profile(declared_s=100.0))
    grant = scheduler.handle(events.TurnRequested("a", 1), 0.0)[0]
    assert isinstance(grant, GrantTurn)
    # No iteration is over, but their number is known.
    scheduler.handle(events.IterationsFinished("a", grant.epoch, 0, 0.0, remaining=10**6), 0.1)
    session = scheduler._state.sessions["a"]
    session.profile = Profile()
    assert scheduler._state.key(session, 0.1)[:2] == (1.0, 0.0)
    assert session.device.policy.rotates_s(session) is None


def test_a_request_of_one_that_was_moved_whole_can_be_withdrawn(world: World):
    world.move_late_s = 5.0
    guests = []
    for name in "ab":
        guest = world.open(name, profile=Profile(iteration_s=0.2, device_share=0.3), iteration_s=1e9)
        guest.persistent = guest.ephemeral = 0
        world.want(guest)
        guest.request, guest.asking = 1, 400 * MIB
        world.tell(events.GrowthAsked(name, 1, 400 * MIB))
        guests.append(guest)
    for guest in guests:
        guest.appointment += 1
        guest.request, guest.asking = 2, 300 * MIB
        world.tell(events.GrowthAsked(guest.id, 2, 300 * MIB))
    moved = [one.session for one in world.decided(EvictSession) if isinstance(one, EvictSession)]
    assert moved == ["a"]
    guests[0].asking = 0
    world.tell(events.GrowthWithdrawn("a", 2))
    assert world.row("a").turn == "waiting"
    assert world.scheduler.ignored == {}


def test_two_old_lives_of_one_id_leave_one_after_the_other(host: World):
    for _ in range(2):
        guest = host.open("a", device="host", persistent=100)
        host.want(guest)
        host.crash(guest, freed_after_s=3)
    assert host.device_row("host").free_bytes == (1000 - 220) * MIB
    host.run(4)
    assert host.device_row("host").free_bytes == 1000 * MIB


def test_a_starving_session_is_admitted_in_its_turn_only():
    world = World(config=Config(max_wait_s=3.0), grows=False)
    world.device()
    world.tell(events.PolicyChanged("gpu", "fifo"))
    world.move_fails = 1.0
    world.want(world.open("a", persistent=400, ephemeral=500))
    for name in ("b", "c"):
        world.want(world.open(name, persistent=300, ephemeral=300))
    world.run(10)
    world.move_fails = 0.0
    world.run(20)
    assert all(world.row(name).turns > 0 for name in "abc")


def test_budget_and_protection_hold_moves_back_until_their_time():
    world = World(config=Config(credit_s=0.0, max_wait_s=1e6, moves_share=0.001, moves_saved_s=0.2), grows=False)
    world.device()
    for name in "ab":
        world.want(world.open(name, persistent=400, ephemeral=100))
    for name in "cd":
        world.want(world.open(name, persistent=300, ephemeral=150))
    world.run(400)
    moved = [one for one in world.decided(EvictSession) if isinstance(one, EvictSession)]
    assert len(moved) < 20
    assert len(world.holders()) >= 1


def test_while_moves_are_late_the_smallest_resident_need_is_tried_last():
    world = World(grows=False)
    world.device(side_by_side=False)
    for number in range(80):
        world.want(world.open(f"s{number}", persistent=1, ephemeral=5, evictable=False))
    world.run(2)
    for number in range(4, 80):
        world.guests[f"s{number}"].ephemeral = 900 * MIB
        world.tell(events.MemoryMeasured(f"s{number}", None, 900 * MIB))
    # Too little for most of them now; the small ones had their turns and are last.
    world.device(side_by_side=False, foreign_bytes=600 * MIB)
    world.run(3)
    assert world.holders()[0] in ("s0", "s1", "s2", "s3")


def test_measurements_beside_others_are_taken_up_at_a_bounded_rate(world: World):
    profile = Profile(iteration_s=0.001, device_share=0.3)
    scheduler = world.scheduler
    epochs = {}
    for name in "ab":
        world.open(name, profile=profile)
        grant = scheduler.handle(events.TurnRequested(name, 1), 0.0)[0]
        assert isinstance(grant, GrantTurn)
        epochs[name] = grant.epoch
    scheduler.handle(events.IterationsFinished("a", epochs["a"], 1, 0.001), 0.001)
    taken_up = scheduler._state.sessions["a"].beside_at
    scheduler.handle(events.IterationsFinished("a", epochs["a"], 1, 0.001), 0.002)
    assert scheduler._state.sessions["a"].beside_at == taken_up
    scheduler.handle(events.IterationsFinished("a", epochs["a"], 1, 0.001), 0.5)
    assert scheduler._state.sessions["a"].beside_at > taken_up


def test_with_lanes_off_an_admitted_waiter_joins_nobodys_lane():
    world = World(config=Config(lanes="off"), grows=False)
    world.device()
    world.tell(events.PolicyChanged("gpu", "pack"))
    world.want(world.open("a", persistent=10, ephemeral=600))
    world.want(world.open("b", persistent=10, ephemeral=500))
    world.run(0.05)
    assert (world.row("b").residency, world.row("b").lane) == ("resident", None)


def test_p_that_is_asked_back_by_a_yielding_holder_admits_nobody(world: World):
    a = world.open("a", persistent=10, ephemeral=700, iteration_s=5.0)
    world.want(a)
    world.tell(events.YieldAsked("a"))
    world.want(
        world.open("b", persistent=400, ephemeral=100, profile=Profile(400 * MIB, 100 * MIB, 5.0, (), None, 1.0))
    )
    assert world.row("b").residency == "absent"
    world.run(6)
    assert world.row("b").turns == 1
