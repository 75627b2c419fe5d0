"""GPUs as the management library shows them: totals, foreign use, who holds what, and what is in the way of governing."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from jupyter_salus.backend.devices.choice import choose, mps_runs
from jupyter_salus.backend.devices.nvml import Nvml
from jupyter_salus.errors import DeviceError
from tests.devices.conftest import Ask
from tests.native.world import World

MIB = 1 << 20
#: Where the stand-in's file says that a device is lost: after three numbers and 256 entries of six.
LOST_AT = 8 * (3 + 256 * 6)


def test_a_gpu_is_found_with_its_name_and_all_its_memory(ask: Ask) -> None:
    id, name, uuid, figures = ask("[device.id, device.name, device.uuid, device.figures({})]")
    assert (id, bool(name)) == ("gpu:0", True)
    assert uuid.startswith("GPU-")
    assert figures == {"capacity_bytes": 256 * MIB, "foreign_bytes": 0, "reserve_bytes": 32 * MIB}


def test_several_gpus_are_governed_each_by_its_number(ask: Ask) -> None:
    found = ask("[[one.id, one.uuid] for one in devices]", SALUS_STANDIN_DEVICES="2")
    assert [id for id, _ in found] == ["gpu:0", "gpu:1"]
    assert found[0][1] != found[1][1]


def test_capacity_and_reserve_limit_what_is_governed(ask: Ask) -> None:
    assert ask("device.figures({})", 100 * MIB, 8 * MIB) == {
        "capacity_bytes": 100 * MIB,
        "foreign_bytes": 0,
        "reserve_bytes": 8 * MIB,
    }
    assert "it has" in ask("0", 512 * MIB)["message"]
    assert ask("0", 64 * MIB, 64 * MIB)["code"] == "bad_value"


def test_what_no_session_holds_is_foreign_and_what_lies_beyond_the_capacity_takes_nothing(
    gpus: World, ask: Ask
) -> None:
    other = gpus.child(guard=None)
    other.do("start()")
    other.do("alloc(100 << 20)")
    used = gpus.used()
    assert ask("device.figures({})")["foreign_bytes"] == used >= 100 * MIB
    assert ask("device.figures({})", 100 * MIB, 8 * MIB)["foreign_bytes"] == 0
    assert ask("device.figures({})", 200 * MIB, 8 * MIB)["foreign_bytes"] == used - 56 * MIB
    # A session's process is told apart by its number, whatever is booked of it.
    assert ask(f"device.figures({{{other.pid}: 1}})")["foreign_bytes"] == 0


def test_where_pids_are_hidden_the_sessions_own_figures_count(gpus: World, ask: Ask) -> None:
    other = gpus.child(guard=None)
    other.do("start()")
    other.do("alloc(100 << 20)")
    used = gpus.used()
    hidden = {"SALUS_STANDIN_HIDE_PIDS": "1"}
    assert ask("dict(device.listed())", **hidden) == {}
    assert ask(f"device.figures({{{other.pid}: {90 * MIB}}})", **hidden)["foreign_bytes"] == used - 90 * MIB


def test_a_process_is_left_until_the_device_lists_it_no_more(gpus: World, ask: Ask) -> None:
    other = gpus.child(guard=None)
    other.do("start()")
    other.do("alloc(32 << 20)")
    usage = ask(f"device.usage({other.pid})")
    assert usage["own_bytes"] >= 32 * MIB
    assert usage["pids"] == [other.pid]
    assert ask(f"device.remains([{other.pid}])")["children_bytes"] >= 32 * MIB
    other.stop()
    assert ask(f"[device.usage({other.pid}), device.remains([{other.pid}])]") == [None, None]


def test_a_divided_gpu_is_told_and_an_old_driver_is_not_refused(ask: Ask) -> None:
    assert "MIG" in ask("0", SALUS_STANDIN_MIG="1")["message"]
    lacks = ask("device.capabilities().lacks['contexts']", SALUS_STANDIN_DRIVER="535.10.01")
    assert "535.10.01" in lacks
    assert "older" not in ask("device.capabilities().lacks['contexts']", SALUS_STANDIN_DRIVER="580.1")


def test_a_lost_gpu_is_told(gpus: World, ask: Ask) -> None:
    ask("0")
    path = gpus.directory / "device"
    if not path.exists():
        gpus.child(guard=None).do("start()")
    with path.open("r+b") as file:
        file.seek(LOST_AT)
        file.write(struct.pack("<Q", 1))
    assert "fell off the bus" in ask("device.figures({})")["message"]


def test_a_library_that_is_not_there_is_told() -> None:
    def missing() -> Nvml:
        raise DeviceError("cannot find the driver: not here")

    with pytest.raises(DeviceError, match="not here"):
        choose("cuda", driver=lambda: True, library=missing)
    choice = choose("auto", driver=lambda: True, library=missing)
    assert choice.devices[0].id == "host"
    assert "not here" in choice.why


def test_mps_is_found_by_its_daemon(short_tmp: Path) -> None:
    for pid, name in (("1", "init\n"), ("2", "nvidia-cuda-mps\n")):
        (short_tmp / pid).mkdir()
        (short_tmp / pid / "comm").write_text(name)
    assert mps_runs(short_tmp)
    (short_tmp / "2" / "comm").unlink()
    assert not mps_runs(short_tmp)
