"""Room on demand: a growing session gets memory without an error, idle ones move out for it, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.gpu import MIB, Gpu
from tests.daemon.speaking import Daemon
from tests.native.world import ChildError, World

OUT_OF_MEMORY = 2


def test_an_idle_session_moves_out_for_one_that_needs_the_room_and_the_other_way_round(gpu: Gpu) -> None:
    first, of_first = gpu.tensor("s1", 40 * MIB)
    second, of_second = gpu.tensor("s2", 52 * MIB)
    row = gpu.until("s1", "evicted")
    assert row["evictions"] == 1
    assert gpu.digest(first, 40 * MIB) == of_first
    assert gpu.until("s2", "evicted")["evictions"] == 1
    assert gpu.digest(second, 52 * MIB) == of_second
    assert gpu.world.used() <= 96 * MIB


def test_what_one_session_alone_could_never_get_is_its_own_error_and_moves_nobody(gpu: Gpu) -> None:
    idle, before = gpu.tensor("s1", 16 * MIB)
    child = gpu.process("s2")
    with pytest.raises(ChildError) as told:
        child.do(f"alloc({120 * MIB})")
    assert told.value.code == OUT_OF_MEMORY
    assert gpu.until("s1", "holding")["evictions"] == 0
    assert any("got no memory" in text for text in gpu.words())
    # It goes on, with what is there.
    child.do(f"alloc({32 * MIB})")
    assert gpu.digest(idle, 16 * MIB) == before


def test_a_capacity_below_the_card_s_holds_although_the_driver_would_give_more(
    world: World, start_daemon: Callable[..., Daemon]
) -> None:
    gpu = Gpu(world, start_daemon, "--capacity=56MiB")
    first, of_first = gpu.tensor("s1", 20 * MIB)
    second, _ = gpu.tensor("s2", 20 * MIB)
    gpu.until("s1", "evicted")
    assert world.used() <= 56 * MIB
    with pytest.raises(ChildError) as told:
        second.do(f"alloc({40 * MIB})")
    assert told.value.code == OUT_OF_MEMORY
    assert gpu.digest(first, 20 * MIB) == of_first


def test_two_that_grow_at_once_and_fit_only_one_by_one_both_get_their_memory(gpu: Gpu) -> None:
    first, of_first = gpu.tensor("s1", 32 * MIB)
    second, of_second = gpu.tensor("s2", 32 * MIB)
    growing = [gpu.begin(child, f"write(alloc({24 * MIB}), bytes({24 * MIB}))") for child in (first, second)]
    for child, number in zip((first, second), growing, strict=True):
        child.end(number)
    assert gpu.digest(first, 32 * MIB) == of_first
    assert gpu.digest(second, 32 * MIB) == of_second
    assert gpu.world.used() <= 96 * MIB


def test_room_that_a_foreign_process_has_taken_is_found_to_be_gone_and_neighbours_give_theirs(gpu: Gpu) -> None:
    idle, before = gpu.tensor("s1", 28 * MIB)
    gpu.until("s1", "holding")
    foreign = gpu.world.child(guard=None)
    foreign.do("start()")
    foreign.do(f"alloc({30 * MIB})")
    child = gpu.process("s2")
    child.do(f"alloc({28 * MIB})")
    gpu.until("s1", "evicted")
    assert gpu.world.used() <= 96 * MIB
    foreign.stop()
    assert gpu.digest(idle, 28 * MIB) == before


def test_an_interrupt_ends_a_wait_for_room_with_the_framework_s_own_error(gpu: Gpu) -> None:
    server = gpu.daemon.talker({"role": "server"})
    server.hear("welcome")
    # A guard that is asked to move out and never answers, in a session of the test's own process.
    gpu.daemon.guest("mute", guarded=True)
    held = {"persistent_bytes": 60 * MIB, "evicted_bytes": 0, "fixed_bytes": 0}
    mute = gpu.daemon.talker({"role": "guard", "session": "mute", "gate": "shut", "epoch": 0, **held})
    mute.hear("welcome")
    child = gpu.process("s1")
    waiting = gpu.begin(child, f"alloc({40 * MIB})")
    mute.hear("evict_blocks")
    gpu.until("s1", "waiting")
    server.say({"kind": "interrupt", "session": "s1"})
    with pytest.raises(ChildError) as told:
        child.end(waiting)
    assert told.value.code == OUT_OF_MEMORY
    child.do(f"alloc({8 * MIB})")
