"""Use of a device without a session is listed with user and bytes, and nobody is harmed for it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from jupyter_salus.backend.daemon.bypass import LOOKS, WORTH_BYTES, Bypass
from jupyter_salus.backend.daemon.peers import Credentials, user_name
from jupyter_salus.backend.daemon.records import Record, Records
from jupyter_salus.backend.daemon.users import Owner

ANNA = Owner("hub:anna", "anna")
MIB = 1024**2


class Server:
    """A server's connection, as far as it is looked at."""

    role = "server"
    owner = ANNA

    def __init__(self, pid: int) -> None:
        self.credentials = Credentials(0, pid)


@pytest.fixture
def processes() -> Iterator[list[int]]:
    """A server, and a terminal's python below it."""
    tree = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=0); "
        "print(p.pid, flush=True); p.wait()"
    )
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
    bypass = Bypass(records, list, lambda: 7.0, False, logging.getLogger("bypass"))
    (row,) = looked(bypass, {kernel: 900 * MIB, child: 100 * MIB})
    assert (row["pid"], row["session"], row["user"]) == (child, "s1", "anna")
    # Its guard came, after all.
    record.pids = (kernel, child)
    assert looked(bypass, {kernel: 900 * MIB, child: 100 * MIB}) == []
    # A kernel that its user's limits refused a seat is there by itself.
    record.unmanaged_reason = "over the limit"
    assert {row["pid"] for row in looked(bypass, {kernel: 900 * MIB, child: 100 * MIB})} == {kernel, child}


def test_what_any_process_has_by_looking_at_the_driver_is_nothing(processes: list[int]) -> None:
    bypass = Bypass(Records(), list, lambda: 7.0, False, logging.getLogger("bypass"))
    assert looked(bypass, {processes[0]: WORTH_BYTES - 1}) == []
    (row,) = looked(bypass, {processes[0]: WORTH_BYTES})
    assert row["user"] == user_name(os.getuid())
