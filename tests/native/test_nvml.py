"""What NVIDIA's own Python package reads through the stand-in, and that the real library answers alike."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.native.world import World

MIB = 1 << 20
#: Where `lost` lies in the stand-in's file: after three numbers and 256 entries of six.
LOST_AT = 8 * (3 + 256 * 6)


def ask(world: World, code: str, **environment: str) -> Any:
    """The value of `code`, where `n` is the initialised package and `d` the first device, in a process of its own."""
    script = (
        "import json, sys, pynvml as n\n"
        "n.nvmlInit()\n"
        "d = n.nvmlDeviceGetHandleByIndex(0)\n"
        "print(json.dumps(eval(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, code],
        env={**world.environment, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


@pytest.fixture(autouse=True)
def package() -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py isn't installed")


def test_devices_are_counted_named_and_found_by_their_uuid(any_world: World) -> None:
    count, name, uuid, index = ask(
        any_world,
        "[n.nvmlDeviceGetCount(), n.nvmlDeviceGetName(d), n.nvmlDeviceGetUUID(d),"
        " n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(d)))]",
    )
    assert count >= 1
    assert name
    assert uuid.startswith("GPU-")
    assert len(uuid) == 40
    assert index == 0


def test_driver_and_modes_are_told(any_world: World) -> None:
    driver, cuda, mode, rates, bus = ask(
        any_world,
        "[n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetCudaDriverVersion(), n.nvmlDeviceGetComputeMode(d),"
        " n.nvmlDeviceGetUtilizationRates(d).gpu, n.nvmlDeviceGetPciInfo(d).busId]",
    )
    assert int(driver.split(".")[0]) > 0
    assert cuda >= 11000
    assert mode == 0
    assert 0 <= rates <= 100
    assert bus.endswith(":00.0")


def test_total_is_free_and_used_and_what_the_driver_keeps(any_world: World) -> None:
    plain, newer = ask(
        any_world,
        "[[m.total, m.free, m.used] for m in [n.nvmlDeviceGetMemoryInfo(d)]]"
        " + [[m.total, m.free, m.used, m.reserved] for m in [n.nvmlDeviceGetMemoryInfo(d, n.nvmlMemory_v2)]]",
    )
    assert plain[0] == plain[1] + plain[2]
    assert newer[0] == sum(newer[1:])


def test_a_process_is_listed_with_what_it_uses_while_it_lives(any_world: World) -> None:
    read = "{p.pid: p.usedGpuMemory for p in n.nvmlDeviceGetComputeRunningProcesses(d)}"
    child = any_world.child(guard=None)
    child.do("context = start(); a = alloc(64 << 20)")
    listed = ask(any_world, read)
    assert any_world.real or listed == {str(child.pid): any_world.used()}
    assert max(listed.values(), default=64 * MIB) >= 64 * MIB
    assert ask(any_world, "n.nvmlDeviceGetMemoryInfo(d).used") == any_world.used()
    child.stop()
    assert str(child.pid) not in ask(any_world, read)


def test_a_container_hides_the_processes_but_not_what_they_use(world: World) -> None:
    child = world.child(guard=None)
    child.do("context = start(); a = alloc(64 << 20)")
    hidden, used = ask(
        world,
        "[len(n.nvmlDeviceGetComputeRunningProcesses(d)), n.nvmlDeviceGetMemoryInfo(d).used]",
        SALUS_STANDIN_HIDE_PIDS="1",
    )
    assert hidden == 0
    assert used >= 64 * MIB


def test_several_devices_have_uuids_of_their_own_which_the_driver_tells_too(world: World) -> None:
    world.environment.update(SALUS_STANDIN_DEVICES="2", SALUS_STANDIN_MIG="1", SALUS_STANDIN_DRIVER="535.104.05")
    uuids, mig, driver = ask(
        world,
        "[[n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(i)) for i in range(n.nvmlDeviceGetCount())],"
        " n.nvmlDeviceGetMigMode(d)[0], n.nvmlSystemGetDriverVersion()]",
    )
    assert len(set(uuids)) == 2
    assert mig == 1
    assert driver == "535.104.05"
    child = world.child(guard=None)
    child.do("start(); raw = c.create_string_buffer(16); call('cuDeviceGetUuid_v2', raw, 1)")
    assert child.do("raw.raw.hex()") == uuids[1].removeprefix("GPU-").replace("-", "")


def test_a_lost_device_is_an_error_of_its_own(world: World) -> None:
    assert ask(world, "n.nvmlDeviceGetCount()") == 1
    with (Path(world.directory) / "device").open("r+b") as file:
        file.seek(LOST_AT)
        file.write(struct.pack("<Q", 1))
    with pytest.raises(AssertionError, match="GPU is lost"):
        ask(world, "n.nvmlDeviceGetName(d)")
