"""Every wait has a reason that a person understands, and what the ledger gives is SAFE as the snapshot shows it."""

from __future__ import annotations

import re

import pytest

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.decisions import EvictSession, ExplainWait
from jupyter_salus.backend.core.policies import NAMES
from jupyter_salus.backend.core.reasons import CODES

from .world import MIB, World

SIZES = [(100, 300), (300, 600), (5, 900), (200, 10), (50, 50)]
NAMED = re.compile(r"\{session:([^}]*)\}")


def _crowd(
    policy: str,
    *,
    side_by_side: bool = True,
    grows: bool = False,
    iterations: int = 1_000_000,
    safe: bool = False,
) -> World:
    """Eight sessions that together need more than twice what the device has; moves are slow and fail at times.

    `safe`: after each event the snapshot is held against the device.
    """
    world = World(seed=5, move_fails=0.2, move_late_s=0.5, grows=grows, checking=safe)
    if safe:
        world.on_event = lambda: _check_that_it_is_safe(world)
    world.device(side_by_side=side_by_side)
    world.tell(events.PolicyChanged("gpu", policy))
    for number in range(8):
        persistent, ephemeral = SIZES[number % len(SIZES)]
        world.want(world.open(f"s{number}", persistent=persistent, ephemeral=ephemeral), iterations)
        world.run(0.5)
    return world


@pytest.mark.parametrize("policy", NAMES)
def test_whoever_waits_has_a_reason_and_a_place_and_nobody_else_has(policy: str):
    world = _crowd(policy)
    for _ in range(60):
        world.run(0.37)
        snapshot = world.scheduler.snapshot(world.now)
        known = {row.id for row in snapshot.sessions}
        for row in snapshot.sessions:
            waits = row.turn in ("waiting", "blocked")
            assert (row.reason is not None) == (waits or row.turn == "lost"), row
            assert (row.position is not None) == (row.turn == "waiting"), row
            assert (row.waiting_since is not None) == (row.turn == "waiting"), row
            if row.reason is not None:
                assert row.reason.code in CODES
                assert set(NAMED.findall(row.reason.text)) <= known - {row.id}
                assert row.reason.behind is None or row.reason.behind in known - {row.id}
        positions = sorted(row.position for row in snapshot.sessions if row.position is not None)
        assert positions == list(range(1, len(positions) + 1))


def test_a_lane_lists_those_that_wait_in_it_in_order(host: World):
    for name in "abcd":
        host.want(host.open(name, device="host"))
    host.run(3)
    snapshot = host.scheduler.snapshot(host.now)
    position = {row.id: row.position for row in snapshot.sessions}
    assert len(snapshot.lanes) == 1
    lane = snapshot.lanes[0]
    assert lane.holder is not None
    assert sorted([lane.holder, *lane.waiting]) == sorted(lane.members) == list("abcd")
    places = [position[id] or 0 for id in lane.waiting]
    assert places == sorted(places) and len(places) == 3


def test_only_a_wait_that_begins_is_explained(host: World):
    a, b = (host.open(name, device="host") for name in "ab")
    host.want(a)
    assert host.decided(ExplainWait) == []
    host.want(b)
    assert host.decided(ExplainWait) == [ExplainWait("b", b.ticket)]


def test_waiting_time_is_counted_while_it_waits_and_kept_afterwards(host: World):
    a, b = (host.open(name, device="host", iteration_s=1e9) for name in "ab")
    host.want(a)
    host.want(b)
    host.run(7)
    assert host.row("b").waited_s == pytest.approx(7)
    b.wanting = False
    host.tell(events.TurnWithdrawn("b", b.ticket))
    host.run(7)
    assert host.row("b").waited_s == pytest.approx(7)
    assert host.row("a").used_s == pytest.approx(14)


def _check_that_it_is_safe(world: World) -> None:
    snapshot = world.scheduler.snapshot(world.now)
    on_device = [row for row in snapshot.sessions if row.residency in ("resident", "evicting", "restoring")]
    lanes = sum(lane.ephemeral_bytes for lane in snapshot.lanes)
    assert sum(row.persistent_bytes for row in on_device) + lanes <= snapshot.devices[0].capacity_bytes
    there = {row.id for row in on_device}
    truly = sum(one.persistent for one in world.guests.values() if one.id in there)
    mapped = sum(one.mapped for one in world.guests.values() if not one.out)
    assert truly + mapped <= 1000 * MIB


@pytest.mark.parametrize("side_by_side", [True, False])
@pytest.mark.parametrize("grows", [True, False])
@pytest.mark.parametrize("policy", NAMES)
def test_what_sessions_and_lanes_have_never_exceeds_the_device(policy: str, grows: bool, side_by_side: bool):
    # Those that are done are idle, and go out for those that come after them.
    world = _crowd(policy, grows=grows, side_by_side=side_by_side, iterations=8, safe=True)
    world.run(12)
    assert world.decided(EvictSession)
