"""Several devices: sessions that need turns on all of theirs at once, and those that come back to another one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.decisions import (
    EvictSession,
    GrantGrowth,
    GrantTurn,
    RefuseGrowth,
    RestoreSession,
    RevokeTurn,
    StopTurn,
)
from jupyter_salus.backend.core.events import DrainAsked, Profile
from jupyter_salus.backend.core.policies import NAMES
from jupyter_salus.errors import BadValue, UnknownDevice

from .world import MIB, Guest, World

#: Uses the whole device.
WHOLE = Profile(10 * MIB, 10 * MIB, device_share=1.0, iteration_s=0.05)


@pytest.fixture
def pair() -> Iterator[World]:
    """Two devices of one kind, 1000 MiB each."""
    world = World(grows=False)
    world.device("one", kind="big")
    world.device("two", kind="big")
    yield world
    world.scheduler.check_invariants()


def _open(world: World, name: str, device: str = "one", **more) -> Guest:
    return world.open(name, **{"device": device, "iteration_s": 0.05, "profile": WHOLE, **more})


def _both(world: World, name: str, **more) -> Guest:
    return _open(world, name, **{"devices": ("one", "two"), **more})


# ---- all at once -----------------------------------------------------------------------------------------------------


def test_a_session_on_two_devices_gets_both_in_one_turn(pair: World):
    guest = _both(pair, "both")
    pair.want(guest, iterations=5)
    grant = pair.decided(GrantTurn)[0]
    assert grant.lanes == ("one/1", "two/1") and grant.lane == "one/1"
    assert pair.holders("one") == pair.holders("two") == ["both"]
    pair.run(2)
    row = pair.row("both")
    assert (row.iterations, row.turn, row.devices) == (5, "none", ("one", "two"))
    assert row.persistent_bytes == 20 * MIB, "on both devices together"
    assert pair.device_row("two").free_bytes == 980 * MIB


def test_devices_are_taken_in_their_own_order(pair: World):
    pair.want(_open(pair, "both", devices=("two", "one")))
    assert pair.decided(GrantTurn)[0].lanes == ("one/1", "two/1")


@pytest.mark.parametrize("policy", NAMES)
def test_it_holds_none_while_it_waits_and_gets_all_at_once(pair: World, policy: str):
    for device in ("one", "two"):
        pair.tell(events.PolicyChanged(device, policy))
    for number in range(3):
        pair.want(_open(pair, f"one{number}", "one"), iterations=40)
        pair.want(_open(pair, f"two{number}", "two", iteration_s=0.17), iterations=12)
    pair.want(_both(pair, "both"), iterations=40)

    def one_or_all() -> None:
        on = [device for device in ("one", "two") if "both" in pair.holders(device)]
        assert len(on) in (0, 2)

    pair.on_event = one_or_all
    pair.run(40)
    assert pair.row("both").iterations == 40
    assert all(pair.row(f"{device}{number}").turn == "none" for device in ("one", "two") for number in range(3))


def test_under_fair_it_gets_its_share_of_the_busier_device(pair: World):
    pair.checking = False
    for number in range(3):
        pair.want(_open(pair, f"one{number}", "one"))
    pair.want(_open(pair, "two0", "two"))
    pair.want(_both(pair, "both"))
    pair.run(120)
    assert pair.row("both").used_s / 120 == pytest.approx(0.25, abs=0.07)
    # The other device doesn't idle meanwhile.
    assert pair.row("two0").used_s / 120 > 0.6


def test_two_that_want_the_same_devices_never_wait_for_one_another(pair: World):
    pair.device("three", kind="big")
    names = {"a": ("one", "two"), "b": ("two", "three"), "c": ("one", "three"), "d": ("one", "two", "three")}
    for name, devices in names.items():
        pair.want(_open(pair, name, devices=devices, iteration_s=0.03 + 0.02 * len(name)))
    for device in ("one", "two", "three"):
        pair.want(_open(pair, f"single-{device}", device))
    pair.checking = False
    pair.run(60)
    pair.scheduler.check_invariants()
    used = {name: pair.row(name).used_s for name in names}
    assert min(used.values()) > 5, used
    assert sum(pair.row(f"single-{device}").used_s for device in ("one", "two", "three")) > 30
    assert pair.longest_wait < pair.config.max_wait_s


def test_revoked_on_one_device_it_leaves_all(pair: World):
    for device in ("one", "two"):
        pair.tell(events.PolicyChanged(device, "priority"))
    pair.want(_both(pair, "both"))
    pair.run(1)
    pair.want(_open(pair, "urgent", "two", priority="high"), iterations=10)
    assert [one.session for one in pair.decided(RevokeTurn)] == ["both"]
    pair.run(0.2)
    assert pair.holders("two") == ["urgent"] and pair.holders("one") == []
    assert pair.row("both").reason.behind == "urgent"
    pair.run(2)
    assert pair.holders("one") == ["both"]


def test_its_memory_goes_and_comes_on_each_device_by_itself(pair: World):
    guest = _both(pair, "both", persistent=600, ephemeral=100, profile=None)
    pair.want(guest, iterations=3)
    pair.run(2)
    pair.want(_open(pair, "big", "two", persistent=800, ephemeral=100, profile=None), iterations=30)
    pair.run(1)
    assert [(one.session, one.device) for one in pair.decided(EvictSession)] == [("both", "two")]
    assert pair.row("both").residency == "evicted"
    assert pair.user_row().host_bytes == 600 * MIB
    pair.want(guest, iterations=3)
    pair.run(20)
    assert pair.row("both").iterations == 6
    assert {one.device for one in pair.decided(RestoreSession) if one.session == "both"} == {"two"}
    pair.tell(events.EvictAsked("both"))
    pair.run(1)
    assert pair.device_row("one").empty
    pair.crash(pair.guests["big"])
    pair.run(1)
    pair.tell(events.RestoreAsked("both"))
    pair.run(1)
    assert guest.out == set()


def test_growth_is_met_on_the_device_where_it_is_asked(pair: World):
    pair.grows = True
    pair.want(_both(pair, "both", ephemeral=400, profile=Profile(10 * MIB)))
    pair.want(_open(pair, "other", "one", ephemeral=700, profile=Profile(10 * MIB)))
    pair.run(10)
    assert pair.row("both").iterations > 10 and pair.row("other").iterations > 10
    assert pair.refused == 0
    guest = pair.guests["both"]
    while guest.epoch is None or guest.asking:
        pair.run(0.01)
    decided = pair.scheduler.handle(events.GrowthAsked("both", 1000, 5 * MIB, "two"), pair.now)
    first = decided[0]
    assert isinstance(first, (GrantGrowth, RefuseGrowth)) and first.request == 1000
    with pytest.raises(UnknownDevice, match="cannot find device 'three' of session both: it is on one, two"):
        pair.tell(events.GrowthAsked("both", 1001, 5 * MIB, "three"))


def test_two_that_block_each_other_over_two_devices_are_parted(pair: World):
    for name in ("a", "b"):
        pair.want(_both(pair, name, persistent=50, ephemeral=10, profile=Profile(50 * MIB, 10 * MIB, device_share=0.2)))
    pair.run(2)
    assert pair.holders("one") == pair.holders("two") == ["a", "b"], "side by side"
    a, b = pair.guests["a"], pair.guests["b"]
    # From here by hand: each takes much of one device and then asks for much of the other.
    for guest in (a, b):
        guest.appointment += 1
        guest.asking = 0
    tell = pair.scheduler.handle
    tell(events.GrowthAsked("a", 51, 700 * MIB, "one"), pair.now)
    tell(events.GrowthAsked("b", 51, 700 * MIB, "two"), pair.now)
    tell(events.GrowthAsked("a", 52, 700 * MIB, "two"), pair.now)
    decided = tell(events.GrowthAsked("b", 52, 700 * MIB, "one"), pair.now)
    pair.scheduler.check_invariants()
    out = [one for one in decided if isinstance(one, EvictSession)]
    assert [(one.session, one.device) for one in out] == [("a", "one"), ("a", "two")], "out whole"
    decided = [one for move in out for one in tell(events.SessionEvicted("a", move.move, 0.1, 800 * MIB), pair.now)]
    pair.scheduler.check_invariants()
    answers = [one for one in decided if isinstance(one, (GrantGrowth, RefuseGrowth)) and one.request == 52]
    assert [one.session for one in answers] == ["b"]


def test_a_wait_for_all_ends_at_once(pair: World):
    pair.want(_open(pair, "busy", "two"))
    guest = _both(pair, "both")
    pair.want(guest)
    pair.run(0.02)
    guest.wanting, guest.iterations_left = False, 0
    pair.tell(events.TurnWithdrawn("both", guest.ticket))
    assert pair.row("both").turn == "none"
    pair.run(2)
    assert pair.holders("two") == ["busy"]


def test_a_second_request_takes_the_place_of_the_first_on_all_devices(pair: World):
    pair.want(_open(pair, "busy", "two"))
    pair.run(0.05)
    guest = _both(pair, "both")
    pair.want(guest)
    if guest.epoch is None:
        guest.ticket += 1
        pair.tell(events.TurnRequested("both", guest.ticket))
    pair.run(2)
    assert pair.row("both").turns > 0


@pytest.mark.parametrize("restarts", [False, True])
def test_its_end_frees_all_devices(pair: World, restarts: bool):
    pair.want(_both(pair, "both", persistent=300, profile=None))
    pair.run(1)
    pair.want(_open(pair, "next", "two", persistent=800, profile=None))
    pair.crash(pair.guests["both"], restarts=restarts)
    pair.run(1)
    assert pair.device_row("one").empty
    assert pair.holders("two") == ["next"]


def test_a_claim_is_given_up_when_the_claimer_is_gone_or_moved_or_drained(pair: World):
    for end in ("gone", "moved", "drained", "broken"):
        slow = _open(
            pair, f"slow-{end}", "two", iteration_s=3.0, profile=Profile(10 * MIB, 10 * MIB, 3.0, device_share=1.0)
        )
        pair.want(slow, iterations=1)
        guest = _both(pair, f"both-{end}")
        pair.want(guest)
        pair.run(0.1)
        assert pair.scheduler._state.devices["one"].claim is not None
        assert pair.row(guest.id).turn == "waiting"
        if end == "gone":
            pair.crash(guest)
        elif end == "moved":
            pair.tell(events.MemoryMeasured(guest.id, 5 * MIB, None))
            pair.tell(events.EvictAsked(guest.id))
        elif end == "drained":
            pair.tell(DrainAsked("two"))
            pair.tell(DrainAsked("two", draining=False))
        else:
            pair.tell(events.SessionBroken(guest.id, "illegal address"))
        pair.scheduler.check_invariants()
        if end != "drained":
            assert pair.scheduler._state.devices["one"].claim is None
        pair.want(_open(pair, f"next-{end}", "one"), iterations=2)
        pair.run(10)
        assert pair.row(f"next-{end}").iterations == 2
        for name in list(pair.guests):
            pair.crash(pair.guests[name])
        pair.run(1)


def test_what_it_holds_when_it_is_stopped_counts_on_each_device(pair: World):
    pair.want(
        _both(pair, "both", persistent=50, ephemeral=200, iteration_s=100.0, profile=Profile(50 * MIB, 200 * MIB))
    )
    pair.want(_open(pair, "next", "two", iteration_s=0.1))
    pair.run(pair.config.revoke_unknown_s + 1)
    assert [one.session for one in pair.decided(StopTurn)][:1] == ["both"]
    guest = pair.guests["both"]
    assert guest.epoch is not None
    epoch, guest.epoch, guest.revoked = guest.epoch, None, False
    guest.wanting, guest.ticket, guest.wanted_at = True, guest.ticket + 1, pair.now
    released = events.TurnReleased("both", epoch, guest.ticket, 100 * MIB, (("two", 60 * MIB),))
    pair.tell(released)
    assert pair.device_row("one").free_bytes == 850 * MIB or pair.holders("one") == ["both"]
    pair.run(1)
    pair.scheduler.check_invariants()


def test_one_that_answers_no_attempt_is_counted_out_on_all_devices(pair: World):
    pair.want(
        _both(pair, "both", persistent=50, ephemeral=200, iteration_s=1000.0, profile=Profile(50 * MIB, 200 * MIB))
    )
    pair.want(_open(pair, "next", "two", iteration_s=0.1))
    pair.run(pair.config.revoke_unknown_s + sum(pair.config.stop_waits_s) + 2)
    assert pair.row("both").turn == "lost"
    assert pair.holders("two")[-1] == "next"
    assert pair.device_row("one").free_bytes == 750 * MIB


def test_it_comes_back_to_a_new_backend_with_its_turn(pair: World):
    back = events.SessionOpened("both", "u", "one", holding=True, persistent_bytes=50 * MIB, devices=("one", "two"))
    decided = pair.scheduler.handle(back, pair.now)
    assert [one.lanes for one in decided if isinstance(one, GrantTurn)] == [("one/1", "two/1")]
    pair.scheduler.check_invariants()


@pytest.mark.parametrize(
    ("devices", "error"), [(("one", "one"), BadValue), (("two",), BadValue), (("one", "x"), UnknownDevice)]
)
def test_devices_that_cannot_be_change_nothing(pair: World, devices: tuple[str, ...], error: type[Exception]):
    before = pair.scheduler.snapshot(pair.now)
    with pytest.raises(error, match=r"^cannot "):
        pair.tell(events.SessionOpened("both", "u", "one", devices=devices))
    assert pair.scheduler.snapshot(pair.now) == before


def test_where_one_runs_at_a_time_it_still_gets_all(pair: World):
    for device in ("one", "two"):
        pair.device(device, moves=False, side_by_side=False)
        pair.want(_open(pair, f"single-{device}", device))
    pair.want(_both(pair, "both"), iterations=50)
    pair.run(30)
    assert pair.row("both").iterations == 50


# ---- coming back elsewhere -------------------------------------------------------------------------------------------


def _out(world: World, name: str, **more) -> Guest:
    """One that ran on the first device and is out in host memory now."""
    guest = _open(world, name, "one", **{"persistent": 300, "profile": None, "roams": True, **more})
    world.want(guest, iterations=1)
    world.run(1)
    world.tell(events.EvictAsked(name))
    world.run(1)
    return guest


def test_it_comes_back_to_the_device_that_is_free(pair: World):
    guest = _out(pair, "a")
    for number in range(2):
        pair.want(_open(pair, f"busy{number}", "one"))
    pair.want(guest, iterations=3)
    pair.run(2)
    assert [one.device for one in pair.decided(RestoreSession)] == ["two"]
    row = pair.row("a")
    assert (row.device, row.iterations) == ("two", 4)
    assert pair.device_row("two").free_bytes == 690 * MIB, "its lane's place is kept"


def test_it_stays_where_nothing_is_better_or_it_may_not(pair: World):
    pair.device("other", kind="small")
    guest, fixed = _out(pair, "a"), _out(pair, "b", roams=False)
    for one in (guest, fixed):
        pair.want(one, iterations=3)
    pair.run(3)
    pair.tell(events.EvictAsked("b"))
    pair.run(1)
    for number in range(3):
        pair.want(_open(pair, f"busy{number}", "one"))
    pair.want(fixed, iterations=1)
    pair.run(5)
    assert {one.device for one in pair.decided(RestoreSession)} == {"one"}


def test_what_left_something_behind_comes_back_to_where_that_is(pair: World):
    guest = _out(pair, "a")
    pair.want(guest, iterations=1)
    pair.run(2)
    pair.tell(events.EvictAsked("a"))
    move = pair.decided(EvictSession)[-1].move
    pair.tell(events.SessionEvicted("a", move, 0.1, 250 * MIB))
    guest.out.add("one")
    for number in range(3):
        pair.want(_open(pair, f"busy{number}", "one"))
    pair.want(guest, iterations=1)
    pair.run(5)
    assert pair.decided(RestoreSession)[-1].device == "one"


def test_a_device_with_nothing_to_do_takes_one_that_waits_elsewhere(pair: World):
    guest = _out(pair, "a")
    full = Profile(800 * MIB, 100 * MIB, 0.05, device_share=1.0)
    for device in ("one", "two"):
        pair.want(_open(pair, f"busy-{device}", device, persistent=800, ephemeral=100, profile=full, evictable=False))
    pair.want(guest, iterations=3)
    pair.run(1)
    assert pair.row("a").residency == "evicted"
    pair.guests["busy-two"].iterations_left = 1
    pair.run(1)
    assert pair.row("a").residency == "evicted", "there is no room yet"
    pair.crash(pair.guests["busy-two"])
    pair.run(2)
    assert (pair.row("a").device, pair.row("a").iterations) == ("two", 4)


def test_a_drained_devices_sessions_go_on_elsewhere(pair: World):
    for number in range(2):
        pair.want(_open(pair, f"s{number}", "one", roams=True), iterations=100)
    pair.run(1)
    pair.tell(DrainAsked("one", reason="a new driver"))
    pair.run(10)
    assert pair.device_row("one").empty
    assert all(pair.row(f"s{number}").device == "two" for number in range(2))
    assert all(pair.row(f"s{number}").iterations == 100 for number in range(2))
