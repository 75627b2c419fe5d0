"""Measured memory, the host device's budget, foreign use, reasons and the snapshot."""

from __future__ import annotations

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.decisions import EvictSession
from jupyter_salus.backend.core.events import Profile
from jupyter_salus.backend.core.reasons import CODES, amount

from .world import MIB, World

UNKNOWN = Profile()


def test_measured_bytes_are_booked(host: World):
    a = host.open("a", device="host", profile=UNKNOWN)
    a.measured = True
    host.tell(events.MemoryMeasured("a", 200 * MIB, None))
    assert host.device_row("host").free_bytes == 800 * MIB
    host.want(a)
    host.tell(events.MemoryMeasured("a", 150 * MIB, 100 * MIB))
    assert host.device_row("host").free_bytes == 750 * MIB
    row = host.row("a")
    assert (row.persistent_bytes, row.peak_persistent_bytes, row.peak_ephemeral_bytes) == (
        150 * MIB,
        200 * MIB,
        100 * MIB,
    )


def test_who_grew_past_the_capacity_waits_while_others_run(host: World):
    a, b = (host.open(name, device="host", profile=UNKNOWN) for name in "ab")
    a.measured = b.measured = True
    host.want(a)
    host.want(b)
    host.run(1)
    host.tell(events.MemoryMeasured("a", 1200 * MIB, None))
    host.run(1)
    turns = host.row("a").turns
    host.run(5)
    assert host.row("a").turns == turns
    assert host.holders("host") == ["b"]
    reason = host.row("a").reason
    assert reason is not None and reason.code == "over_capacity"
    assert "has grown to 1.2 GiB, 200 MiB more than the device has" in reason.text
    assert host.device_row("host").over_capacity
    # Once it is small again it is like the others.
    host.tell(events.MemoryMeasured("a", 100 * MIB, None))
    host.run(1)
    assert host.row("a").turns > turns
    assert not host.device_row("host").over_capacity


def test_who_grew_past_the_capacity_goes_on_if_nobody_else_can_run(host: World):
    a = host.open("a", device="host", profile=UNKNOWN, ephemeral=50)
    a.measured = True
    host.want(a)
    host.tell(events.MemoryMeasured("a", 1200 * MIB, 50 * MIB))
    host.run(1)
    iterations = host.row("a").iterations
    host.run(5)
    assert host.row("a").iterations > iterations
    assert host.device_row("host").over_capacity
    host.tell(events.YieldAsked("a"))
    host.run(1)
    assert host.holders("host") == ["a"]
    host.crash(a)
    host.run(1)
    assert not host.device_row("host").over_capacity


def test_one_that_does_not_fit_goes_on_where_nothing_can_be_moved_and_nobody_else_can_run(host: World):
    host.want(host.open("idle", device="host", persistent=700, ephemeral=10), iterations=1)
    host.run(1)
    host.want(host.open("new", device="host", persistent=100, ephemeral=500))
    assert host.holders("host") == ["new"]


def test_foreign_use_is_made_up_for_by_idle_sessions(world: World):
    world.want(world.open("idle", persistent=400), iterations=1)
    world.run(1)
    world.want(world.open("a", persistent=100, ephemeral=200))
    world.run(1)
    world.device(foreign_bytes=500 * MIB, reserve_bytes=100 * MIB)
    world.run(2)
    assert [one.session for one in world.decided(EvictSession) if isinstance(one, EvictSession)] == ["idle"]
    assert world.holders() == ["a"]
    row = world.device_row()
    assert (row.foreign_bytes, row.reserve_bytes, row.free_bytes) == (500 * MIB, 100 * MIB, 100 * MIB)


def test_a_waiting_member_whose_need_grows_leaves_a_lane_that_cannot_grow(host: World):
    for name in "ab":
        host.want(host.open(name, device="host", persistent=300, ephemeral=100))
    host.run(1)
    waiting = next(name for name in "ab" if name not in host.holders("host"))
    assert host.row(waiting).lane is not None
    host.guests[waiting].ephemeral = 350 * MIB
    host.tell(events.MemoryMeasured(waiting, None, 350 * MIB))
    assert host.row(waiting).lane is not None
    host.tell(events.MemoryMeasured(waiting, None, 500 * MIB))
    assert host.row(waiting).lane is None


def test_measured_bytes_of_one_that_is_out_change_nothing(world: World):
    world.want(world.open("a", persistent=100), iterations=1)
    world.run(1)
    world.tell(events.EvictAsked("a"))
    world.run(1)
    world.tell(events.MemoryMeasured("a", 5 * MIB, None))
    assert world.device_row().free_bytes == 1000 * MIB
    assert world.row("a").persistent_bytes == 100 * MIB


def test_waits_have_reasons_that_name_sessions(host: World):
    a, b, c = (host.open(name, device="host", persistent=300) for name in "abc")
    host.want(a)
    host.want(b)
    host.want(c)
    reason = host.row("b").reason
    assert reason is not None
    assert (reason.code, reason.behind, reason.text) == ("turn", "a", "waits for {session:a}, which has the device")
    assert [host.row(name).position for name in "abc"] == [None, 1, 2]
    host.run(0.15)
    reason = host.row("b").reason
    assert reason is not None and reason.code == "draining"
    assert host.row("a").reason is None


def test_no_room_names_those_that_hold_most(world: World):
    for name, persistent in [("a", 300), ("b", 200), ("c", 100), ("d", 50)]:
        world.want(world.open(name, persistent=persistent, ephemeral=5, evictable=False), iterations=1)
        world.run(1)
    world.want(world.open("new", persistent=400, ephemeral=100))
    reason = world.row("new").reason
    assert reason is not None
    assert (reason.code, reason.behind) == ("no_room", "a")
    assert "{session:a} holds" in reason.text and "{session:d}" not in reason.text
    world.want(world.guests["d"])
    reason = world.row("new").reason
    assert reason is not None and reason.code == "no_room"


def test_no_room_with_nobody_else_names_nobody(world: World):
    world.device(foreign_bytes=990 * MIB)
    world.want(world.open("new", persistent=400, ephemeral=100))
    reason = world.row("new").reason
    assert reason is not None
    assert (reason.code, reason.behind) == ("no_room", None)


def test_moving_sessions_say_so(world: World):
    world.move_late_s = 3.0
    world.want(world.open("a", persistent=600), iterations=1)
    world.run(1)
    world.want(world.open("b", persistent=600, ephemeral=100))
    world.want(world.guests["a"])
    reason = world.row("a").reason
    assert reason is not None and reason.code == "evicting"
    world.crash(world.guests["b"])
    world.run(3.2)
    seen = {row.code for row in [world.row("a").reason] if row is not None}
    world.run(3)
    assert seen <= {"restoring", "evicting"}
    assert world.holders() == ["a"]


def test_sessions_that_share_a_lane_read_as_running(host: World):
    for name in "ab":
        host.want(host.open(name, device="host", iteration_s=0.05))
    host.run(5)
    rows = [host.row(name) for name in "ab"]
    assert {row.state for row in rows} <= {"running", "yielding"}
    assert rows[0].sharing_with == ("b",)
    assert rows[1].sharing_with == ("a",)


def test_amounts_are_for_people():
    assert [amount(value) for value in (5, 2048, 3 * MIB, 2560 * MIB)] == ["5 bytes", "2 KiB", "3 MiB", "2.5 GiB"]


def test_codes_of_reasons_are_documented():
    assert all(meaning and not meaning.endswith(".") for meaning in CODES.values())


def test_nobody_waiting_is_said_of_an_idle_device(world: World):
    assert world.device_row().lanes_reason == "nobody else wants the device"
    profile = Profile(iteration_s=0.1, device_share=1.0)
    for name in "ab":
        world.want(world.open(name, profile=profile))
    assert "wouldn't pay" in world.device_row().lanes_reason
