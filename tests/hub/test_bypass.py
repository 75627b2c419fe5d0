"""Use of a device without a session is listed with user and bytes, and nobody is harmed for it.

First a real backend and processes on a stand-in GPU, seen by what answers for NVML there; then what is hard to bring about.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_salus.backend.daemon.bypass import LOOKS, WORTH_BYTES, Bypass
from jupyter_salus.backend.daemon.peers import Credentials, user_name
from jupyter_salus.backend.daemon.records import Record, Records
from jupyter_salus.backend.daemon.users import Owner
from jupyter_salus.protocol.client import Client
from tests.hub.conftest import GRACE, Shared
from tests.native.world import World

ANNA = Owner("hub:anna", "anna")
MIB = 1024**2


class Server:
    """A server's connection, as far as it is looked at."""

    role = "server"
    owner = ANNA

    def __init__(self, pid: int) -> None:
        self.credentials = Credentials(0, pid)


def unmanaged(client: Client) -> dict[int, dict[str, Any]]:
    return {row["pid"]: row for row in client.ask("about")["unmanaged"]}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can come as another user")
def test_what_the_driver_lists_without_a_session_is_shown_to_its_user_and_to_admins(
    shared_gpu: Shared, world: World, wait_until: Callable[..., None]
) -> None:
    door = shared_gpu.door_of("anna")
    managed = world.child(JUPYTER_SALUS_SOCKET=door, JUPYTER_SALUS_SESSION="s1")
    plain = world.child(guard=None)  # a terminal's python, or a child that dropped the preload
    for child, amount in ((managed, 24 * MIB), (plain, 40 * MIB)):
        child.do("start()")
        child.do(f"alloc({amount})")
    # Both are below what says that it is anna's server.
    with Client(door, role="server") as server, shared_gpu.client(admin=True) as admin:
        wait_until(lambda: plain.pid in unmanaged(server), "the process to be listed")
        assert set(unmanaged(admin)) == {plain.pid}
        row = unmanaged(server)[plain.pid]
        assert (row["user"], row["device"], row["session"]) == ("anna", "gpu:0", None)
        assert row["bytes"] >= 40 * MIB
        assert next(one for one in admin.ask("users")["users"] if one["name"] == "anna")["unmanaged_bytes"] >= 40 * MIB
        with shared_gpu.client_of(GRACE) as grace:
            assert unmanaged(grace) == {}
            (device,) = grace.ask("state")["devices"]
            assert device["foreign_bytes"] >= 40 * MIB, "its memory is planned around"
        assert " of anna uses " in shared_gpu.log()
        assert " of gpu:0 without a session" in shared_gpu.log()
        assert plain.do("1 + 1") == 2, "nothing of ours ended it"
        plain.stop()
        wait_until(lambda: unmanaged(admin) == {}, "the list to be empty again")


@pytest.fixture
def processes() -> Iterator[list[int]]:
    """A server, and a terminal's python below it."""
    inside = "import os; print(os.getpid(), flush=True); input()"
    tree = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {inside!r}], stdin=0).wait()"
    server = subprocess.Popen([sys.executable, "-c", tree], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None
    child = int(server.stdout.readline())
    yield [server.pid, child]
    server.communicate(b"\n")


def looked(bypass: Bypass, listed: dict[int, int], times: int = LOOKS) -> list[dict]:
    for _ in range(times):
        bypass.listed("gpu:0", listed)
    return bypass.rows()


def test_a_terminals_process_is_its_servers_users_whatever_its_uid(processes: list[int], caplog) -> None:
    server, child = processes
    bypass = Bypass(Records(), lambda: [Server(server)], lambda: 7.0, True, logging.getLogger("bypass"))  # type: ignore[list-item]
    assert looked(bypass, {child: 300 * MIB}, LOOKS - 1) == []  # a session's guard may be about to say hello
    (row,) = looked(bypass, {child: 300 * MIB})
    assert (row["user"], row["pid"], row["bytes"], row["session"], row["device"]) == (
        "anna",
        child,
        300 * MIB,
        None,
        "gpu:0",
    )
    assert "python" in row["command"]
    assert bypass.rows(Owner("1", "bert")) == []
    assert bypass.bytes_of("anna") == 300 * MIB
    assert [record.getMessage() for record in caplog.records if "without a session" in record.getMessage()] == [
        f"{row['command']} of anna uses 300 MiB of gpu:0 without a session"
    ]
    os.kill(child, 0)  # nothing of ours ended it
    assert looked(bypass, {}) == []


def test_a_kernels_child_that_dropped_the_preload_is_told_with_its_session(processes: list[int]) -> None:
    kernel, child = processes
    records = Records()
    record = Record("s1", ANNA, 1, "gpu:0", 0.0, pid=kernel, pids=(kernel,))
    records.by_session["s1"] = record
    records.entered(record)
    bypass = Bypass(records, list, lambda: 7.0, False, logging.getLogger("bypass"))
    (row,) = looked(bypass, {kernel: 900 * MIB, child: 100 * MIB})
    assert (row["pid"], row["session"], row["user"]) == (child, "s1", "anna")
    # Its guard came, after all.
    record.pids = (kernel, child)
    assert looked(bypass, {kernel: 900 * MIB, child: 100 * MIB}) == []
    # A kernel that its user's limits refused a seat is there by itself.
    record.unmanaged_reason = "over the limit"
    assert {row["pid"] for row in looked(bypass, {kernel: 900 * MIB, child: 100 * MIB})} == {kernel, child}


def test_a_server_that_comes_later_says_whose_its_processes_are(processes: list[int]) -> None:
    """A backend that has just been restarted is told by the driver first, and by servers then."""
    server, child = processes
    connections: list[Server] = []
    bypass = Bypass(Records(), lambda: connections, lambda: 7.0, False, logging.getLogger("bypass"))  # type: ignore[arg-type, return-value]
    looked(bypass, {child: 300 * MIB})
    connections.append(Server(server))
    (row,) = looked(bypass, {child: 300 * MIB}, 1)
    assert row["user"] == "anna"
    connections.clear()
    (row,) = looked(bypass, {child: 300 * MIB}, 1)
    assert row["user"] == "anna"


def test_a_kernel_that_was_announced_and_never_came_is_no_session(processes: list[int]) -> None:
    """Or whoever can speak to the backend could have a process of theirs taken for one that is governed."""
    kernel, _ = processes
    records = Records()
    records.by_session["s1"] = Record("s1", ANNA, 1, "gpu:0", 0.0, pid=kernel)
    bypass = Bypass(records, list, lambda: 7.0, False, logging.getLogger("bypass"))
    (row,) = looked(bypass, {kernel: 900 * MIB})
    assert (row["user"], row["session"]) == ("anna", "s1")


def test_what_any_process_has_by_looking_at_the_driver_is_nothing(processes: list[int]) -> None:
    bypass = Bypass(Records(), list, lambda: 7.0, False, logging.getLogger("bypass"))
    assert looked(bypass, {processes[0]: WORTH_BYTES - 1}) == []
    (row,) = looked(bypass, {processes[0]: WORTH_BYTES})
    assert row["user"] == user_name(os.getuid())
