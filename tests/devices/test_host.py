"""The host device against real processes: what they hold, what their children hold, what is left when they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_salus.backend.devices import machine, processes
from jupyter_salus.backend.devices.base import Device, Figures
from jupyter_salus.backend.devices.choice import choose, driver_found
from jupyter_salus.backend.devices.host import RESERVE_SHARE, HostDevice
from jupyter_salus.backend.devices.size import bytes_text, parse_bytes
from jupyter_salus.errors import BadValue, DeviceError

MIB = 1024**2
#: Holds 64 MiB, forks two children of which one writes 32 MiB of its own, says so, and ends when told to.
FAMILY = """
import os, sys
held = bytearray(os.urandom(1)) * (64 << 20)
children = []
for size in (0, 32 << 20):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        more = bytearray(os.urandom(1)) * size
        os.write(writer, b"x")
        sys.stdin.buffer.read()
        os._exit(0)
    os.read(reader, 1)
    children.append(child)
print(*children, flush=True)
sys.stdin.buffer.read()
for child in children:
    os.waitpid(child, 0)
"""


class Family:
    """A process with two children."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.children = [int(pid) for pid in self.process.stdout.readline().split()]

    def end(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()


@pytest.fixture
def family() -> Iterator[Family]:
    made = Family()
    yield made
    made.end()


@pytest.fixture(params=["kernel's lists", "whole table"])
def lineage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "whole table":
        monkeypatch.setattr(processes, "_kernel_lists_children", lambda: False)


def test_forked_children_count_with_what_they_hold_on_top(family: Family, lineage: None) -> None:
    usage = HostDevice().usage(family.process.pid)
    assert usage is not None
    assert set(usage.pids) == {family.process.pid, *family.children}
    assert 64 * MIB <= usage.own_bytes <= 100 * MIB
    assert 32 * MIB <= usage.children_bytes <= 60 * MIB
    assert usage.resident_bytes == usage.own_bytes + usage.children_bytes


def test_children_that_are_sessions_of_their_own_count_apart(family: Family, lineage: None) -> None:
    usage = HostDevice().usage(family.process.pid, apart={family.children[1]})
    assert usage is not None
    assert set(usage.pids) == {family.process.pid, family.children[0]}
    assert usage.children_bytes < 32 * MIB


def test_the_figure_agrees_with_the_systems(family: Family) -> None:
    usage = HostDevice().usage(family.process.pid)
    status = Path(f"/proc/{family.process.pid}/status").read_text()
    system = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))
    assert usage is not None
    assert abs(usage.own_bytes - system) <= 0.1 * system


def test_without_the_rollup_shared_file_pages_are_left_out(family: Family) -> None:
    bytes_held = processes._unshared_bytes(family.children[1])
    assert bytes_held is not None
    assert bytes_held >= 32 * MIB


def test_what_children_hold_remains_when_their_parent_is_killed(
    family: Family, wait_until: Callable[..., None]
) -> None:
    device = HostDevice()
    usage = device.usage(family.process.pid)
    assert usage is not None
    os.kill(family.process.pid, signal.SIGKILL)
    wait_until(lambda: not processes.alive(family.process.pid))
    left = device.remains(usage.pids)
    assert left is not None
    assert set(left.pids) == set(family.children)
    assert left.resident_bytes >= 32 * MIB
    family.end()
    wait_until(lambda: device.remains(usage.pids) is None)


def test_a_stopped_process_still_holds_its_bytes(family: Family) -> None:
    os.kill(family.process.pid, signal.SIGSTOP)
    try:
        usage = HostDevice().usage(family.process.pid)
        assert usage is not None
        assert usage.own_bytes >= 64 * MIB
    finally:
        os.kill(family.process.pid, signal.SIGCONT)


def test_a_process_that_is_gone_or_a_zombie_holds_nothing(wait_until: Callable[..., None]) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    wait_until(lambda: not processes.alive(process.pid))
    device = HostDevice()
    assert device.usage(process.pid) is None  # a zombie: nobody waited for it yet
    process.wait()
    assert device.usage(process.pid) is None
    assert device.remains([process.pid]) is None
    assert processes.private_bytes(process.pid) is None
    assert processes.descendants(process.pid) == []


def test_without_a_process_table_nothing_is_known(monkeypatch: pytest.MonkeyPatch, short_tmp: Path) -> None:
    monkeypatch.setattr(processes, "PROC", short_tmp / "none")
    assert HostDevice().usage(os.getpid()) is None
    assert processes.descendants(os.getpid()) == []


def test_the_host_moves_nothing_and_says_so() -> None:
    device: Device = HostDevice(16 * MIB)
    can = device.capabilities()
    assert (can.moves, can.side_by_side, can.memory_mode) == (False, False, "host")
    assert set(can.lacks) == {"moves", "side_by_side"}
    assert device.id == "host"
    assert "no GPU" in device.name


def test_a_given_capacity_is_for_sessions_alone() -> None:
    assert HostDevice(16 * MIB).figures({7: 5}) == Figures(16 * MIB, 0, 0)


def test_without_a_capacity_the_machines_memory_is_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory", lambda: machine.Memory(1000 * MIB, 400 * MIB, "machine"))
    assert HostDevice().figures({7: 60 * MIB, 8: 40 * MIB}) == Figures(
        1000 * MIB, 300 * MIB, int(1000 * MIB * RESERVE_SHARE)
    )
    assert HostDevice().figures({7: 500 * MIB}).foreign_bytes == 0


def test_this_machines_memory_is_read() -> None:
    found = machine.memory()
    assert 0 < found.used_bytes < found.total_bytes


def tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


MEMINFO = "MemTotal:       1000000 kB\nMemAvailable:    600000 kB\n"


@pytest.mark.parametrize(
    ("files", "total", "used", "source"),
    [
        ({}, 1_024_000_000, 409_600_000, "machine"),
        (
            {
                "proc/self/cgroup": "0::/user/pod\n",
                "sys/fs/cgroup/user/memory.max": "500000000\n",
                "sys/fs/cgroup/user/memory.current": "200000000\n",
                "sys/fs/cgroup/user/memory.stat": "anon 1\ninactive_file 50000000\n",
                "sys/fs/cgroup/user/pod/memory.max": "max\n",
                "sys/fs/cgroup/user/pod/memory.current": "1\n",
                "sys/fs/cgroup/user/pod/memory.stat": "anon 1\n",
            },
            500_000_000,
            150_000_000,
            "control group",
        ),
        (
            {
                "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/not/mounted\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "300000000\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "100000000\n",
                "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 10000000\n",
            },
            300_000_000,
            90_000_000,
            "control group",
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "100000000\n",
                "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 10000000\n",
            },
            1_024_000_000,
            409_600_000,
            "machine",
        ),
    ],
    ids=["no control groups", "version 2, limit above", "version 1 in a container", "version 1 without a limit"],
)
def test_the_tightest_limit_counts(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], total: int, used: int, source: str
) -> None:
    tree(short_tmp, {"proc/meminfo": MEMINFO, **files})
    monkeypatch.setattr(machine, "ROOT", short_tmp)
    found = machine.memory()
    assert (found.total_bytes, found.used_bytes) == (total, used)
    assert found.source.startswith(source)


def test_without_a_process_table_the_total_is_still_known(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ROOT", short_tmp)
    assert machine.memory().total_bytes > 0


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GiB", 16 * 1024**3),
        ("512 MiB", 512 * MIB),
        ("1.5g", 3 * 1024**3 // 2),
        ("2GB", 2 * 10**9),
        ("2e9", 2 * 10**9),
        ("100", 100),
        ("7b", 7),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "0", "1 lightyear", "1e99", "nan", "16GiB!"])
def test_what_is_no_size_is_told(text: str) -> None:
    with pytest.raises(BadValue, match=r"cannot use .* as a size"):
        parse_bytes(text)


def test_sizes_are_written_for_people() -> None:
    written = [bytes_text(size) for size in (0, 999, 1024, 16 * 1024**3, 1500 * MIB, -2048)]
    assert written == ["0 B", "999 B", "1 KiB", "16 GiB", "1.46 GiB", "-2 KiB"]


def test_auto_picks_the_host_where_no_driver_is_and_says_so() -> None:
    choice = choose("auto", 64 * MIB, driver=lambda: False)
    assert [device.id for device in choice.devices] == ["host"]
    assert choice.why == "The host device was picked: no NVIDIA driver is here"


def test_the_host_can_be_chosen() -> None:
    assert "was chosen" in choose("host").why


def test_a_gpu_that_is_not_there_is_told() -> None:
    with pytest.raises(DeviceError, match="no NVIDIA driver is on this machine"):
        choose("cuda", driver=lambda: False)


def test_an_unknown_kind_of_device_is_told() -> None:
    with pytest.raises(BadValue, match="of kind 'tpu'"):
        choose("tpu")


def test_looking_for_a_driver_harms_nothing() -> None:
    assert driver_found() in (True, False)
