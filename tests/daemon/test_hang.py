"""A backend that doesn't run for a while: who asks learns it by silence, and the time isn't anybody's."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from jupyter_salus.backend.daemon.clock import STOOD_S, SystemClock
from tests.daemon.speaking import Daemon


class Machine:
    """A monotonic clock to set."""

    def __init__(self) -> None:
        self.at = 50.0

    def __call__(self) -> float:
        return self.at


def test_the_backends_time_stands_while_nobody_reads_its_clock() -> None:
    machine = Machine()
    clock = SystemClock(machine)
    machine.at += STOOD_S
    assert clock.now() == 50.0 + STOOD_S
    assert clock.stood_s == 0.0
    machine.at += 1000.0
    assert clock.now() == 50.0 + STOOD_S
    machine.at += 1.0
    assert clock.now() == 51.0 + STOOD_S
    assert clock.stood_s == 1000.0


@pytest.mark.parametrize("role", ["guest", "server", "client"])
def test_a_ping_is_answered_whoever_says_it(daemon: Daemon, role: str) -> None:
    peer = daemon.talker({"role": role, "session": "s1"})
    peer.hear("welcome")
    peer.say({"kind": "ping"})
    peer.hear("pong")


def test_a_backend_that_is_stopped_answers_nobody_and_the_time_is_charged_to_nobody(
    start_daemon: Callable[..., Daemon], wait_until: Callable[..., None]
) -> None:
    daemon = start_daemon(config={"daemon.clock.STOOD_S": 0.8})
    holder, waiter = daemon.guest("s1"), daemon.guest("s2")
    holder.say({"kind": "turn_wanted", "ticket": 1})
    epoch = holder.hear("turn_granted")["epoch"]
    began = time.monotonic()
    waiter.say({"kind": "turn_wanted", "ticket": 1})
    holder.hear("turn_revoked", epoch=epoch)
    os.kill(daemon.process.pid, signal.SIGSTOP)
    try:
        holder.say({"kind": "ping"})
        holder.socket.settimeout(2.0)
        with pytest.raises(TimeoutError):
            holder.socket.recv(1)
    finally:
        os.kill(daemon.process.pid, signal.SIGCONT)
    holder.hear("pong")
    row = daemon.session("s1")
    assert row is not None
    assert row["used_s"] <= time.monotonic() - began - 1.0
    holder.say({"kind": "turn_released", "epoch": epoch})
    waiter.hear("turn_granted", ticket=1)
    wait_until(lambda: any("The backend didn't run for" in text for text in daemon.words()))
