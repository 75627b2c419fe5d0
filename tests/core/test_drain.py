"""A device that is maintained: turns end, what can goes out, nobody gets a turn until that is over."""

from __future__ import annotations

import pytest

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.decisions import GrantTurn
from jupyter_salus.backend.core.events import DrainAsked, Profile
from jupyter_salus.errors import NotPossible, UnknownDevice

from .world import MIB, World

WHOLE = Profile(100 * MIB, 100 * MIB, device_share=1.0, iteration_s=0.2)


def _busy(world: World) -> None:
    world.want(world.open("runs", persistent=100, ephemeral=100, profile=WHOLE))
    world.want(world.open("waits", persistent=100, ephemeral=100, profile=WHOLE))
    idle = world.open("idle", persistent=100)
    world.want(idle, iterations=1)
    world.run(3)
    world.tell(events.PinChanged("idle", True))


def test_everybody_goes_out_at_a_boundary_and_comes_back_afterwards(world: World):
    _busy(world)
    world.tell(DrainAsked("gpu", reason="a new driver"))
    world.run(2)
    assert {world.row(name).residency for name in ("runs", "waits", "idle")} == {"evicted"}
    row = world.device_row()
    assert (row.draining, row.empty, row.lanes_reason) == ("a new driver", True, "the device is being drained")
    reason = world.row("waits").reason
    assert (reason.code, reason.text) == (
        "drained",
        "the device is being maintained, and nobody gets a turn: a new driver",
    )
    # A kernel starts all the same, and waits; not even the bound on waits gives it a turn.
    world.want(world.open("new"))
    granted = len(world.decided(GrantTurn))
    world.run(2 * world.config.max_wait_s)
    assert len(world.decided(GrantTurn)) == granted
    assert world.row("new").reason.code == "drained"
    with pytest.raises(NotPossible, match="cannot bring session idle back: device gpu is drained"):
        world.tell(events.RestoreAsked("idle"))
    world.tell(DrainAsked("gpu", draining=False))
    world.run(10)
    assert world.device_row().draining is None
    assert all(world.row(name).turns > 0 for name in ("runs", "waits", "new"))
    assert world.row("idle").residency == "evicted", "it comes back when it is wanted"


def test_a_device_that_moves_nothing_is_drained_of_turns(host: World):
    for name in "ab":
        host.want(host.open(name, device="host"))
    host.run(2)
    host.tell(DrainAsked("host"))
    host.run(2)
    assert host.holders("host") == []
    row = host.device_row("host")
    assert (row.draining, row.empty) == ("", False)
    assert host.row("a").reason.text == "the device is being maintained, and nobody gets a turn"
    host.crash(host.guests["a"])
    host.crash(host.guests["b"])
    host.run(1)
    assert host.device_row("host").empty


def test_what_is_in_mid_iteration_gets_its_memory_first():
    world = World(grows=True)
    world.device()
    world.want(world.open("fixed", persistent=600, evictable=False), iterations=1)
    world.run(2)
    world.want(world.open("runs", persistent=100, ephemeral=200, iteration_s=1.0, profile=Profile(100 * MIB)))
    world.run(0.3)
    world.tell(DrainAsked("gpu"))
    world.run(5)
    row = world.row("runs")
    assert (row.residency, row.iterations, world.refused) == ("evicted", 1, 0)
    assert not world.device_row().empty, "one can't be moved"
    world.scheduler.check_invariants()


def test_two_that_wait_for_memory_in_mid_iteration_are_parted():
    world = World(grows=True)
    world.device(capacity=1000 * MIB)
    for name in "ab":
        world.want(world.open(name, persistent=100, ephemeral=600, iteration_s=1.0, profile=Profile(100 * MIB)))
    world.run(0.2)
    world.tell(DrainAsked("gpu"))
    world.run(10)
    assert world.device_row().empty
    assert world.refused == 0


def test_a_refused_move_is_tried_again(world: World):
    _busy(world)
    world.move_fails = 1.0
    world.tell(DrainAsked("gpu"))
    world.run(4)
    assert not world.device_row().empty
    world.move_fails = 0.0
    world.run(10)
    assert world.device_row().empty


def test_only_a_device_that_is_there_can_be_drained(world: World):
    with pytest.raises(UnknownDevice, match="cannot find device 'gpu:7'"):
        world.tell(DrainAsked("gpu:7"))


# ---- what comes back to a new backend, and what can be moved ---------------------------------------------------------


def test_a_session_that_was_out_is_out_for_a_new_backend_too(world: World):
    guest = world.open("a", persistent=300)
    world.crash(guest, freed_after_s=0.0)
    world.run(0.1)
    world.tell(events.SessionOpened("a", "u", "gpu", persistent_bytes=5 * MIB, out_bytes=295 * MIB))
    guest.alive = True
    guest.out.add("gpu")
    world.guests["a"] = guest
    row = world.row("a")
    assert (row.residency, row.persistent_bytes) == ("evicted", 300 * MIB)
    assert world.user_row().host_bytes == 295 * MIB
    world.want(guest, iterations=2)
    world.run(3)
    assert (world.row("a").residency, world.row("a").iterations) == ("resident", 2)
    assert world.device_row().free_bytes == 690 * MIB


def test_what_can_be_moved_may_change(world: World):
    guest = world.open("a", persistent=300)
    world.want(guest, iterations=1)
    world.run(2)
    world.tell(events.EvictableChanged("a", False))
    with pytest.raises(NotPossible, match="cannot move session a out"):
        world.tell(events.EvictAsked("a"))
    world.want(world.open("big", persistent=800))
    world.run(3)
    assert world.row("big").turns == 0
    world.tell(events.EvictableChanged("a", True))
    world.tell(events.EvictableChanged("a", True))
    world.run(3)
    assert world.row("big").turns > 0
    # While it moves, and while it is out.
    world.tell(events.EvictAsked("big"))
    world.tell(events.EvictableChanged("big", False))
    world.guests["big"].iterations_left = 1
    world.run(3)
    world.tell(events.EvictableChanged("a", False))
    world.want(guest, iterations=1)
    world.crash(world.guests["big"])
    world.run(3)
    assert world.row("a").iterations == 2
    world.tell(events.EvictableChanged("a", True))
    world.tell(events.EvictAsked("a"))
    world.run(1)
    world.tell(events.EvictableChanged("a", False))
    world.move_fails = 1.0
    world.want(guest, iterations=1)
    world.run(0.3)
    world.move_fails = 0.0
    world.run(3)
    assert world.row("a").iterations == 3
