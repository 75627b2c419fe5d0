"""Several GPUs of one backend, and sessions that no guard came to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_salus.errors import NotPossible
from tests.daemon.gpu import MIB, Gpu
from tests.daemon.speaking import Daemon
from tests.native.world import World


def test_sessions_begin_on_the_emptiest_gpu_and_are_told_which_it_is(
    world: World, start_daemon: Callable[..., Daemon]
) -> None:
    gpu = Gpu(world, start_daemon, SALUS_STANDIN_DEVICES="2")
    server = gpu.daemon.talker({"role": "server"})
    server.hear("welcome")
    places = []
    for number in range(3):
        announced = {"session": f"s{number}", "token": f"token-of-{number}", "incarnation": 1}
        server.say({"kind": "announce", "request": number, **announced})
        places.append(server.hear("done", request=number)["body"])
    assert [place["device"] for place in places] == ["gpu:0", "gpu:1", "gpu:0"]
    assert len({place["uuid"] for place in places}) == 2
    assert [row["id"] for row in gpu.daemon.state()["devices"]] == ["gpu:0", "gpu:1"]


def test_a_session_is_on_the_gpu_that_its_process_uses_and_moves_out_of_that(
    world: World, start_daemon: Callable[..., Daemon]
) -> None:
    gpu = Gpu(world, start_daemon, SALUS_STANDIN_DEVICES="2")
    child = world.child(JUPYTER_SALUS_SOCKET=gpu.daemon.path, JUPYTER_SALUS_SESSION="s1")
    child.do("context = start(1)")
    child.do(f"at = alloc({24 * MIB})")
    child.do(f"write(at, random_bytes({24 * MIB}))")
    before = gpu.digest(child, 24 * MIB)
    gpu.daemon.until("s1", lambda row: row is not None and row["device"] == "gpu:1" and row["state"] == "holding")
    assert world.used(1) >= 32 * MIB
    gpu.act("evict", "s1")
    gpu.until("s1", "evicted")
    assert world.used(1) <= 8 * MIB
    assert gpu.digest(child, 24 * MIB) == before
    assert gpu.until("s1", "holding")["device"] == "gpu:1"


def test_without_a_guard_a_session_is_plain_and_its_memory_is_seen_from_outside(gpu: Gpu) -> None:
    server = gpu.daemon.talker({"role": "server"})
    server.hear("welcome")
    announced = {"session": "s1", "token": "token-of-s1", "incarnation": 1}
    server.say({"kind": "announce", "request": 1, **announced})
    server.say({"kind": "launched", "request": 2, "session": "s1", "unguarded": "no compiler was there"})
    server.hear("done", request=2)
    guest = gpu.daemon.guest("s1", token="token-of-s1", incarnation=1, guarded=False)
    assert guest.heard[0]["memory_mode"] == "plain"
    plain = gpu.world.child(guard=None)
    plain.do("start()")
    plain.do(f"alloc({24 * MIB})")
    row = gpu.daemon.until("s1", lambda row: row is not None and row["persistent_bytes"] >= 24 * MIB)
    assert row is not None
    assert (row["memory_mode"], row["unguarded_reason"]) == ("plain", "no compiler was there")
    # It takes turns where its guest is at a boundary, and never moves.
    guest.say({"kind": "cell_started", "cell": 1}, {"kind": "turn_wanted", "ticket": 3})
    epoch = guest.hear("turn_granted", ticket=3)["epoch"]
    guest.say({"kind": "turn_released", "epoch": epoch}, {"kind": "cell_finished", "cell": 1})
    gpu.until("s1", "holding")
    with pytest.raises(NotPossible):
        gpu.act("evict", "s1")
    plain.stop()
    gpu.daemon.until("s1", lambda row: row is not None and row["persistent_bytes"] < 24 * MIB)


def test_a_process_is_told_the_capacity_and_what_idle_ones_could_give_up(
    world: World, start_daemon: Callable[..., Daemon]
) -> None:
    gpu = Gpu(world, start_daemon, "--capacity=64MiB")
    gpu.tensor("s1", 16 * MIB)
    gpu.until("s1", "holding")
    child = gpu.process("s2")
    free, total = child.do("memory()")
    assert total == 64 * MIB
    assert free >= 40 * MIB
