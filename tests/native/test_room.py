"""A request for memory that the driver refuses waits while the backend makes room."""

from __future__ import annotations

import os
import signal

import pytest

from tests.native.backend import Guard, until
from tests.native.world import Child, ChildError, World

MIB = 1 << 20
OUT_OF_MEMORY = 2


@pytest.fixture
def pair(world: World) -> tuple[Child, Guard, Child]:
    """A guarded process, its guard, and a process without one that takes 200 of the device's 256 MiB."""
    backend = world.backend()
    child = world.child()
    child.do("context = start()")
    other = world.child(guard=None)
    other.do("start(); taken = alloc(200 << 20)")
    guard = backend.guard()
    guard.easy = False
    return child, guard, other


@pytest.mark.parametrize(
    "request_code", ["alloc(128 << 20)", "create(128 << 20)", "got('cuMemAllocAsync', 128 << 20, 0)"]
)
def test_a_refused_request_waits_and_is_answered_once_there_is_room(
    pair: tuple[Child, Guard, Child], request_code: str
) -> None:
    child, guard, other = pair
    waiting = child.begin(f"call('cuCtxSetCurrent', context); value = {request_code}")
    wanted = guard.wait("room_wanted")
    assert wanted["bytes"] == 128 * MIB
    assert not child.ready(waiting)
    other.do("free(taken)")
    guard.say("room_granted", ticket=wanted["ticket"])
    child.end(waiting)
    assert child.do("value") > 0


def test_a_grant_without_room_asks_again(pair: tuple[Child, Guard, Child]) -> None:
    child, guard, other = pair
    waiting = child.begin("call('cuCtxSetCurrent', context); value = alloc(128 << 20)")
    for ticket in (1, 2, 3):
        guard.say("room_granted", ticket=guard.wait("room_wanted", ticket=ticket)["ticket"])
    last = guard.wait("room_wanted", ticket=4)
    other.do("free(taken)")
    guard.say("room_granted", ticket=last["ticket"])
    child.end(waiting)


def test_a_refusal_is_the_frameworks_own_out_of_memory(pair: tuple[Child, Guard, Child]) -> None:
    child, guard, _ = pair
    waiting = child.begin("call('cuCtxSetCurrent', context); alloc(128 << 20)")
    guard.say("room_refused", ticket=guard.wait("room_wanted")["ticket"], message="others hold it")
    with pytest.raises(ChildError) as caught:
        child.end(waiting)
    assert caught.value.code == OUT_OF_MEMORY
    child.do("call('cuCtxSetCurrent', context); b = alloc(8 << 20)")


def test_a_process_that_waits_for_room_can_be_stopped_and_moved_out(pair: tuple[Child, Guard, Child]) -> None:
    child, guard, other = pair
    child.do("a = alloc(16 << 20); data = random_bytes(16 << 20); write(a, data)")
    waiting = child.begin("call('cuCtxSetCurrent', context); value = alloc(64 << 20)")
    wanted = guard.wait("room_wanted")
    guard.drain()
    guard.evict(1)
    other.do("free(taken)")
    guard.restore(2)
    guard.say("room_granted", ticket=wanted["ticket"])
    guard.open()
    child.end(waiting)
    assert child.do("read(a, 16 << 20) == data")


def test_ctrl_c_ends_a_wait_for_room(pair: tuple[Child, Guard, Child]) -> None:
    child, guard, _ = pair
    waiting = child.begin("alloc(128 << 20)", apart=False)
    wanted = guard.wait("room_wanted")
    os.kill(child.pid, signal.SIGINT)
    guard.say("interrupt")
    guard.wait("room_withdrawn", ticket=wanted["ticket"])
    with pytest.raises(ChildError, match="KeyboardInterrupt"):
        child.end(waiting)


def test_growth_beyond_the_limit_is_asked_for_before_it_is_mapped(world: World) -> None:
    backend = world.backend(easy=False)
    child = world.child()
    starting = child.begin("globals().update(context=start())")
    guard = backend.guard()
    guard.welcome()
    guard.wait("touched")
    guard.open(limit_bytes=32 * MIB)
    child.end(starting)
    child.do("call('cuCtxSetCurrent', context); a = alloc(24 << 20)")
    used = world.used()
    waiting = child.begin("call('cuCtxSetCurrent', context); b = alloc(16 << 20)")
    wanted = guard.wait("room_wanted")
    assert world.used() == used
    guard.say("room_granted", ticket=wanted["ticket"], limit_bytes=64 * MIB)
    child.end(waiting)
    assert child.do("memory()[1]") == 64 * MIB


def test_what_is_granted_is_asked_for_beyond_and_shows_in_no_total(world: World) -> None:
    backend = world.backend(easy=False)
    child = world.child()
    starting = child.begin("globals().update(context=start())")
    guard = backend.guard()
    guard.welcome()
    guard.wait("touched")
    guard.open(granted_bytes=32 * MIB)
    child.end(starting)
    child.do("call('cuCtxSetCurrent', context); a = alloc(24 << 20)")
    assert child.do("memory()[1]") == 256 * MIB
    waiting = child.begin("call('cuCtxSetCurrent', context); b = alloc(16 << 20)")
    wanted = guard.wait("room_wanted")
    assert (wanted["bytes"], wanted["persistent_bytes"]) == (16 * MIB, 24 * MIB)
    guard.say("room_granted", ticket=wanted["ticket"], granted_bytes=40 * MIB)
    child.end(waiting)
    guard.say("device_memory", granted_bytes=64 * MIB)
    guard.say("ping")
    guard.wait("pong")
    child.do("c = alloc(24 << 20)")


def test_a_context_waits_for_room_too(world: World) -> None:
    other = world.child(guard=None)
    other.do("start(); taken = alloc(248 << 20)")
    backend = world.backend(easy=False)
    child = world.child()
    starting = child.begin("globals().update(context=start())")
    guard = backend.guard()
    guard.welcome()
    guard.wait("touched")
    guard.open()
    wanted = guard.wait("room_wanted")
    assert wanted["what"] == "context"
    other.do("free(taken)")
    until(lambda: world.used() < 64 * MIB, "room")
    guard.say("room_granted", ticket=wanted["ticket"])
    child.end(starting)


def test_figures_for_the_program_count_what_idle_sessions_could_give_up(pair: tuple[Child, Guard, Child]) -> None:
    child, guard, _ = pair
    free, total = child.do("memory()")
    guard.say("device_memory", reclaimable_bytes=100 * MIB)
    guard.say("ping")
    guard.wait("pong")
    assert child.do("memory()") == [free + 100 * MIB, total]
