"""Growing needs: met, not refused; deadlocks resolved; refused only what can't be."""

from __future__ import annotations

import pytest

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.decisions import EvictSession, GrantGrowth, RefuseGrowth
from jupyter_salus.backend.core.events import Profile
from jupyter_salus.errors import NotPossible

from .world import MIB, Guest, World

UNKNOWN = Profile()


def _ask(world: World, guest: Guest, mib: int) -> bool:
    """Ask for more; True: granted at once. The guest stands still until then."""
    guest.appointment += 1
    guest.request += 1
    guest.asking = mib * MIB
    world.tell(events.GrowthAsked(guest.id, guest.request, guest.asking))
    return guest.asking == 0


def _learned(world: World, name: str, share: float = 0.3, *, evictable: bool = True) -> Guest:
    """A session in its turn, whose iterations are known and whose memory isn't."""
    guest = world.open(name, profile=Profile(iteration_s=0.2, device_share=share), iteration_s=1e9, evictable=evictable)
    guest.persistent = guest.ephemeral = 0
    world.want(guest)
    assert guest.epoch is not None
    return guest


def test_free_bytes_are_granted_at_once_and_booked(world: World):
    a = _learned(world, "a")
    assert _ask(world, a, 300)
    assert _ask(world, a, 300)
    assert world.device_row().free_bytes == 400 * MIB
    assert world.row("a").ephemeral_bytes == 600 * MIB


def test_what_a_session_alone_could_never_get_is_refused_with_who_holds_what(world: World):
    a = _learned(world, "a")
    assert _ask(world, a, 300)
    assert _ask(world, a, 800)
    refused = [one for one in world.decided(RefuseGrowth) if isinstance(one, RefuseGrowth)]
    assert [one.request for one in refused] == [2]
    assert refused[0].message.startswith("cannot give 838860800 more bytes of device gpu: this session holds 314572800")


def test_growth_without_a_turn_or_twice_is_not_possible(world: World):
    a, b = _learned(world, "a"), _learned(world, "b")
    world.open("c")
    with pytest.raises(NotPossible, match="cannot give session c 5 more bytes: it has no turn"):
        world.tell(events.GrowthAsked("c", 1, 5))
    assert _ask(world, a, 600)
    assert not _ask(world, b, 600)
    with pytest.raises(NotPossible, match="it waits for an earlier request"):
        world.tell(events.GrowthAsked("b", 9, 5))


def test_idle_sessions_go_out_for_a_growing_one(world: World):
    world.want(world.open("idle", persistent=500), iterations=1)
    world.run(1)
    a = _learned(world, "a")
    assert not _ask(world, a, 700)
    assert world.row("a").state == "waiting"
    assert world.row("a").reason is not None
    world.run(1)
    assert a.asking == 0
    assert world.row("a").state == "running"
    assert world.row("idle").state == "evicted"


def test_lanes_merge_for_a_growing_one_and_take_turns_from_then_on(world: World):
    a, b = _learned(world, "a"), _learned(world, "b")
    assert _ask(world, a, 600)
    assert not _ask(world, b, 600)
    assert a.revoked
    a.iteration_s = b.iteration_s = 0.1
    world._work(a)
    world.run(0.2)
    assert b.asking == 0
    a.ephemeral = b.ephemeral = 600 * MIB
    world.run(10)
    assert len(world.holders()) == 1
    assert world.row("a").turns > 1 and world.row("b").turns > 1


def test_a_withdrawn_request_is_not_granted(world: World):
    a, b = _learned(world, "a"), _learned(world, "b")
    assert _ask(world, a, 600)
    assert not _ask(world, b, 600)
    b.asking = 0
    world.tell(events.GrowthWithdrawn("b", b.request))
    assert world.row("b").turn in ("running", "yielding")
    assert len([one for one in world.decided(GrantGrowth) if isinstance(one, GrantGrowth) and one.session == "b"]) == 0


def test_two_that_wait_for_each_other_in_mid_iteration_are_taken_apart(world: World):
    a, b = _learned(world, "a"), _learned(world, "b")
    for guest in (a, b):
        assert _ask(world, guest, 400)
    assert not _ask(world, a, 300)
    assert not _ask(world, b, 300)
    moved = [one for one in world.decided(EvictSession) if isinstance(one, EvictSession)]
    assert [(one.session, one.reason) for one in moved] == [("a", "deadlock")]
    world.run(0.2)
    assert b.asking == 0
    assert world.row("a").residency == "evicted"
    b.iteration_s = a.iteration_s = 0.1
    world.grows = False
    world._work(b)
    world.run(5)
    # It came back with what it had and got what it asked for.
    assert world.row("a").turns >= 2
    assert a.asking == 0
    assert not world.decided(RefuseGrowth)
    # Having learned both needs, they are not let in side by side again.
    assert len(world.holders()) == 1


def test_where_nobody_can_be_moved_the_youngest_request_is_refused(world: World):
    a, b = _learned(world, "a", evictable=False), _learned(world, "b", evictable=False)
    for guest in (a, b):
        assert _ask(world, guest, 400)
    assert not _ask(world, a, 300)
    world.now += 1
    b.appointment += 1
    b.request += 1
    b.asking = 300 * MIB
    world.tell(events.GrowthAsked("b", b.request, b.asking))
    refused = [one.session for one in world.decided(RefuseGrowth) if isinstance(one, RefuseGrowth)]
    assert refused == ["b"]
    assert world.row("b").turn in ("running", "yielding")


def _outside(world: World, mib: int) -> None:
    """Processes outside hold so much from now on."""
    world.device(foreign_bytes=mib * MIB)


def test_what_only_processes_outside_stand_in_the_way_of_is_waited_for_and_granted_when_they_go(world: World):
    a = _learned(world, "a")
    assert _ask(world, a, 300)
    _outside(world, 500)
    assert not _ask(world, a, 400)
    row = world.row("a")
    assert (row.state, row.residency, row.reason.code) == ("waiting", "resident", "no_room")
    assert row.reason.text.startswith("needs 400 MiB more of the device's memory; processes outside use 500 MiB of it")
    world.run(2000)  # It doesn't starve: nobody could help it.
    _outside(world, 400)
    assert world.row("a").state == "waiting"
    _outside(world, 200)
    assert a.asking == 0
    assert world.row("a").state == "running"
    assert not world.decided(RefuseGrowth)
    assert not world.decided(EvictSession)


def test_who_waits_for_processes_outside_keeps_nobody_from_running_and_its_place_is_others(world: World):
    a = _learned(world, "a")
    a.persistent = 20 * MIB
    world.tell(events.MemoryMeasured("a", a.persistent))
    assert _ask(world, a, 300)
    _outside(world, 400)
    assert not _ask(world, a, 400)
    used_s = world.row("a").used_s
    b = world.open("b", persistent=10, ephemeral=50)
    world.want(b, 20)
    world.run(10)
    assert world.row("b").iterations == 20
    assert world.row("a").residency == "resident"
    # One that needs its place gets it, too.
    c = world.open("c", persistent=10, ephemeral=500)
    world.want(c, 20)
    world.run(10)
    assert world.row("c").iterations == 20
    assert world.row("a").residency == "evicted"
    assert world.row("a").used_s == used_s
    _outside(world, 0)
    world.run(1)
    assert a.asking == 0
    assert world.row("a").state == "running"


def test_a_wait_for_processes_outside_can_be_ended(world: World):
    a = _learned(world, "a")
    assert _ask(world, a, 300)
    _outside(world, 500)
    assert not _ask(world, a, 400)
    a.asking = 0
    world.tell(events.GrowthWithdrawn("a", a.request))
    # It waits for a turn like any other, and goes on with what it has.
    assert world.row("a").state == "running"
    assert world.row("a").ephemeral_bytes >= 300 * MIB


def test_what_was_granted_and_could_not_be_had_is_nobodys_while_it_waits(world: World):
    a = _learned(world, "a")
    _outside(world, 500)
    assert _ask(world, a, 400)
    assert not _ask(world, a, 300)
    # The driver had no room for the first of them either.
    world.tell(events.MemoryMeasured("a", None, 0))
    assert world.device_row().free_bytes == 500 * MIB
    world.tell(events.GrowthWithdrawn("a", a.request))
    world.scheduler.check_invariants()
    _outside(world, 0)


def test_use_from_outside_that_comes_while_one_waits_for_room_lets_it_wait_on(world: World):
    a, b = _learned(world, "a", evictable=False), _learned(world, "b", evictable=False)
    for guest in (a, b):
        assert _ask(world, guest, 300)
    _outside(world, 300)
    assert not _ask(world, a, 200)
    assert not _ask(world, b, 200)
    # One of them alone would fit if those outside went, so that none is refused.
    assert not world.decided(RefuseGrowth)
    _outside(world, 0)
    world.run(1)
    assert (a.asking, b.asking) == (0, 0)


def test_a_blocked_session_that_dies_frees_the_others(world: World):
    a, b = _learned(world, "a"), _learned(world, "b")
    assert _ask(world, a, 600)
    assert not _ask(world, b, 600)
    world.crash(a)
    world.run(1)
    assert b.asking == 0


def test_a_blocked_session_that_releases_waits_no_more(world: World):
    a, b = _learned(world, "a"), _learned(world, "b")
    assert _ask(world, a, 600)
    assert not _ask(world, b, 600)
    epoch, b.epoch, b.asking = b.epoch, None, 0
    assert epoch is not None
    world.tell(events.TurnReleased("b", epoch))
    assert world.row("b").state == "holding"


def test_growing_jobs_that_fill_the_device_both_finish():
    world = World(seed=1)
    world.device(capacity=12 * 1024 * MIB)
    for name in "ab":
        guest = world.open(name, persistent=1024, ephemeral=6 * 1024, profile=UNKNOWN)
        world.want(guest, iterations=50)
    world.run(120)
    assert [world.row(name).iterations for name in "ab"] == [50, 50]
    assert world.refused == 0


def test_what_was_asked_for_and_stays_becomes_persistent(world: World):
    a = _learned(world, "a")
    assert _ask(world, a, 300)
    world.tell(events.MemoryMeasured("a", 200 * MIB, 100 * MIB))
    row = world.row("a")
    assert (row.persistent_bytes, row.ephemeral_bytes) == (200 * MIB, 100 * MIB)
    assert world.device_row().free_bytes == 700 * MIB
