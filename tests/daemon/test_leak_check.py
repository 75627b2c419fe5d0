"""The leak check sees what a test leaves behind, and nothing else; a backend's peers leave nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import pytest

from jupyter_salus.testing import FakeClock
from jupyter_salus.testing.leaks import holdings, left_behind
from jupyter_salus.testing.plugin import fake_clock, leak_check  # noqa: F401  (fixtures)
from tests.daemon.speaking import Daemon


def test_descriptors_threads_and_processes_are_seen_until_they_go() -> None:
    before = holdings()
    assert left_behind(before, patience_s=0) == []
    pair = socket.socketpair()
    go = threading.Event()
    thread = threading.Thread(target=go.wait, name="the-thread")
    thread.start()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    left = left_behind(before, patience_s=0)
    assert sum(one.startswith("descriptor") for one in left) >= 2
    assert "thread the-thread" in left
    assert any(one.startswith(f"process {process.pid} (") and "input()" in one for one in left)
    for end in pair:
        end.close()
    go.set()
    thread.join()
    process.communicate()
    assert left_behind(before) == []


def test_the_clock_moves_when_it_is_told_and_never_back() -> None:
    clock = FakeClock(now=10.0, wall=100.0)
    clock.advance(2.5)
    assert (clock.now(), clock.wall()) == (12.5, 102.5)
    clock.jump(-50)
    assert (clock.now(), clock.wall()) == (12.5, 52.5)
    with pytest.raises(ValueError, match="it never goes back"):
        clock.advance(-1)


def test_the_fixture_is_a_clock(fake_clock: FakeClock) -> None:  # noqa: F811
    assert fake_clock.now() == FakeClock().now()


@pytest.mark.usefixtures("leak_check")
def test_clients_leave_nothing_in_their_process() -> None:
    left, right = socket.socketpair()
    left.close()
    right.close()


def open_descriptors(daemon: Daemon) -> int:
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def test_a_backend_keeps_nothing_of_peers_that_are_gone(daemon: Daemon) -> None:
    def come_and_go(number: int) -> None:
        guest = daemon.guest_process(f"s{number}")
        guest.say({"kind": "turn_wanted", "ticket": 1})
        guest.hear("turn_granted")
        guest.process.kill()
        daemon.until(f"s{number}", lambda row: row is None)
        bad = daemon.talker()
        bad.raw(b"\xff\xff\xff\xff")
        assert bad.hang_up()

    come_and_go(0)
    before = open_descriptors(daemon)
    for number in range(1, 5):
        come_and_go(number)
    assert open_descriptors(daemon) <= before + 1
    with daemon.client() as client:
        metrics = client.ask("metrics")
    assert (metrics["sessions"], metrics["connections"]) == (0, 1)
