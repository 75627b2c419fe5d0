"""Guards and the backend: sessions of the GPU come, move out and back, and go, with all their bytes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from jupyter_salus.errors import NotPossible
from tests.daemon.gpu import MIB, Gpu
from tests.daemon.speaking import Daemon
from tests.native.world import World


def test_a_process_that_touches_the_gpu_is_a_session_with_what_it_holds(gpu: Gpu) -> None:
    child, _ = gpu.tensor("s1", 40 * MIB)
    row = gpu.until("s1", "holding")
    assert (row["memory_mode"], row["device"]) == ("blocks", "gpu:0")
    assert row["turns"] >= 1
    # Its context counts with it once the device was asked.
    whole = gpu.daemon.until("s1", lambda row: row is not None and row["persistent_bytes"] >= 48 * MIB)
    assert whole is not None
    assert whole["persistent_bytes"] <= 60 * MIB
    child.stop()
    gpu.gone("s1")
    gpu.until_used(lambda used: used == 0, "all bytes free")


def test_an_idle_session_moves_out_and_comes_back_with_the_same_bytes(gpu: Gpu) -> None:
    child, before = gpu.tensor("s1", 32 * MIB)
    for number in (1, 2):
        gpu.until("s1", "holding")
        gpu.act("evict", "s1")
        row = gpu.until("s1", "evicted")
        assert row["evictions"] == number
        gpu.until_used(lambda used: used < 16 * MIB, "the session's bytes free")
        gpu.act("restore", "s1")
        gpu.until("s1", "holding")
        gpu.until_used(lambda used: used >= 32 * MIB, "the session's bytes back")
    assert gpu.digest(child, 32 * MIB) == before
    assert any("was moved out" in text for text in gpu.words())


def test_a_session_that_is_out_comes_back_at_its_first_touch(gpu: Gpu) -> None:
    child, before = gpu.tensor("s1", 32 * MIB)
    gpu.until("s1", "holding")
    gpu.act("evict", "s1")
    gpu.until("s1", "evicted")
    assert gpu.digest(child, 32 * MIB) == before
    gpu.until("s1", "holding")


def test_what_is_here_is_not_brought_back(gpu: Gpu) -> None:
    gpu.tensor("s1", 16 * MIB)
    gpu.until("s1", "holding")
    with gpu.daemon.client() as client, pytest.raises(NotPossible, match="it is resident"):
        client.act("restore", "s1")


def test_without_host_memory_nothing_is_begun(world: World, start_daemon: Callable[..., Daemon]) -> None:
    gpu = Gpu(world, start_daemon, "--host-memory=16MiB")
    child, before = gpu.tensor("s1", 32 * MIB)
    gpu.until("s1", "holding")
    gpu.act("evict", "s1")
    gpu.daemon.until("s1", lambda row: any("couldn't be moved out" in text for text in gpu.words()))
    assert gpu.until("s1", "holding")["evictions"] == 0
    assert world.used() >= 32 * MIB
    assert gpu.digest(child, 32 * MIB) == before


@pytest.mark.parametrize("state", ["holding", "evicted", "waiting"])
def test_a_process_killed_in_any_state_leaves_nothing_and_disturbs_nobody(gpu: Gpu, state: str) -> None:
    other, theirs = gpu.tensor("other", 16 * MIB)
    child, _ = gpu.tensor("s1", 32 * MIB)
    gpu.until("s1", "holding")
    if state == "evicted":
        gpu.act("evict", "s1")
        gpu.until("s1", "evicted")
    elif state == "waiting":
        # Foreign use that takes all room: it can't come back, and waits for that.
        gpu.act("evict", "s1")
        gpu.until("s1", "evicted")
        foreign = gpu.world.child(guard=None)
        foreign.do("start()")
        foreign.do(f"alloc({48 * MIB})")
        gpu.begin(child, "digest(at, 64)")
        row = gpu.daemon.until("s1", lambda row: row is not None and row["turn"] == "wanted" and row["reason"])
        assert row is not None
        assert row["residency"] in ("evicted", "restoring")
    os.kill(child.pid, signal.SIGKILL)
    child.process.wait()
    gpu.gone("s1")
    if state == "waiting":
        foreign.stop()
    gpu.until_used(lambda used: used < 48 * MIB, "only the other session's bytes in use")
    assert gpu.digest(other, 16 * MIB) == theirs


def test_a_foreign_process_that_takes_the_room_is_waited_for_with_that_reason(gpu: Gpu) -> None:
    child, before = gpu.tensor("s1", 40 * MIB)
    gpu.until("s1", "holding")
    gpu.act("evict", "s1")
    gpu.until("s1", "evicted")
    foreign = gpu.world.child(guard=None)
    foreign.do("start()")
    foreign.do(f"alloc({64 * MIB})")
    reading = gpu.begin(child, f"digest(at, {40 * MIB})")
    gpu.daemon.until("s1", lambda row: row is not None and row["reason"] and row["reason"]["code"] == "no_room")
    assert not child.ready(reading)
    foreign.stop()
    assert child.end(reading) == before


def test_what_is_out_stays_out_when_the_backend_is_killed_and_comes_back_later(gpu: Gpu) -> None:
    child, before = gpu.tensor("s1", 32 * MIB, JUPYTER_SALUS_PATIENCE_S="120")
    idle, theirs = gpu.tensor("s2", 16 * MIB, JUPYTER_SALUS_PATIENCE_S="120")
    gpu.until("s1", "holding")
    gpu.act("evict", "s1")
    gpu.until("s1", "evicted")
    gpu.daemon.kill()
    gpu.daemon.start()
    row = gpu.until("s1", "evicted")
    assert row["persistent_bytes"] >= 32 * MIB
    assert gpu.until("s2", "holding")["persistent_bytes"] >= 16 * MIB
    assert gpu.digest(child, 32 * MIB) == before
    assert gpu.digest(idle, 16 * MIB) == theirs


def test_where_nobody_answers_any_more_what_is_out_comes_back_by_itself(gpu: Gpu) -> None:
    child, before = gpu.tensor("s1", 32 * MIB, JUPYTER_SALUS_PATIENCE_S="1")
    gpu.until("s1", "holding")
    gpu.act("evict", "s1")
    gpu.until("s1", "evicted")
    gpu.daemon.kill()
    assert gpu.digest(child, 32 * MIB) == before
    gpu.daemon.start()
    # It says what it did meanwhile, and is governed again.
    gpu.daemon.until("s1", lambda row: row is not None and row["persistent_bytes"] >= 32 * MIB)
    gpu.until("s1", "holding")
    gpu.act("evict", "s1")
    gpu.until("s1", "evicted")


def test_a_guard_is_refused_where_no_gpu_is_governed(daemon: Daemon) -> None:
    guard = daemon.talker({"role": "guard", "session": "s1", "pid": 7, "gate": "shut", "epoch": 0})
    assert guard.hear("failed")["code"] == "not_possible"
    assert guard.hang_up()
