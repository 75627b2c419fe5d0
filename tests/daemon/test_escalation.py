"""A holder that doesn't reach a boundary: asked, waited for, and counted out; the others go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.daemon.speaking import Daemon


@pytest.fixture
def daemon(start_daemon: Callable[..., Daemon]) -> Daemon:
    """One that soon has enough of who doesn't answer."""
    return start_daemon(config={"revoke_least_s": 0.3, "stop_waits_s": [0.2, 0.2, 0.2]})


def test_a_kernel_stopped_in_its_turn_is_counted_out_and_comes_back_when_it_goes_on(daemon: Daemon) -> None:
    holder, other = daemon.guest_process("s1", {"name": "a.ipynb"}), daemon.guest("s2")
    holder.say({"kind": "turn_wanted", "ticket": 1})
    epoch = holder.hear("turn_granted")["epoch"]
    # Its iterations are short, so it gets seconds to end one, and not the minute of a session that nothing is known of.
    holder.say({"kind": "progress", "epoch": epoch, "iterations": 1, "busy_s": 0.001})
    daemon.until("s1", lambda row: row is not None and row["iterations"] == 1)
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        other.say({"kind": "turn_wanted", "ticket": 1})
        theirs = other.hear("turn_granted")["epoch"]
        row = daemon.session("s1")
        assert row is not None
        assert row["state"] == "yielding"
        assert row["reason"]["code"] == "lost"
    finally:
        os.kill(holder.pid, signal.SIGCONT)
    holder.hear("turn_revoked", epoch=epoch)
    holder.say({"kind": "turn_released", "epoch": epoch, "wants_more": True, "ticket": 2})
    other.say({"kind": "turn_released", "epoch": theirs})
    assert holder.hear("turn_granted", ticket=2)["epoch"] > theirs
    counted_out = "was counted out: it came to no boundary in time, and others run meanwhile"
    assert row["reason"]["text"] == counted_out
    said = [text for text in daemon.words() if "no boundary" in text]
    assert said == ["a.ipynb came to no boundary in time and is to be stopped", f"a.ipynb {counted_out}"]
