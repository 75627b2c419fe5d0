"""The end of a peer, in each state and by each way; and sessions that come back."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_salus.backend.devices.processes import alive, resident_bytes
from tests.daemon.speaking import Daemon, GuestProcess

MIB = 1024**2
Row = dict[str, Any]


def reach(daemon: Daemon, guest: GuestProcess, state: str) -> None:
    """Bring a guest into a state, with another session as the one it waits for or that waits for it."""
    other = daemon.guest("other")
    if state == "waiting":
        other.say({"kind": "turn_wanted", "ticket": 1})
        other.hear("turn_granted")
    if state != "none":
        guest.say({"kind": "turn_wanted", "ticket": 1})
    if state in ("running", "yielding", "holding"):
        epoch = guest.hear("turn_granted")["epoch"]
        if state == "yielding":
            other.say({"kind": "turn_wanted", "ticket": 1})
            guest.hear("turn_revoked")
        if state == "holding":
            guest.say({"kind": "turn_released", "epoch": epoch})
    daemon.until("s1", lambda row: row is not None and row["state"] == state)


@pytest.mark.parametrize("state", ["none", "waiting", "running", "yielding", "holding"])
def test_a_kernel_killed_in_any_state_is_gone_and_others_go_on(daemon: Daemon, state: str) -> None:
    guest = daemon.guest_process("s1")
    reach(daemon, guest, state)
    os.kill(guest.pid, signal.SIGKILL)
    daemon.until("s1", lambda row: row is None)
    last = daemon.guest("s3")
    if state != "waiting":
        last.say({"kind": "turn_wanted", "ticket": 1})
        if state == "yielding":
            assert daemon.until("other", lambda row: row is not None and row["turn"] == "held")
        else:
            last.hear("turn_granted")


def test_forked_children_that_hold_the_socket_keep_no_turn(daemon: Daemon) -> None:
    guest, other = daemon.guest_process("s1", forks=2, child_bytes=40 * MIB), daemon.guest("other")
    guest.say({"kind": "turn_wanted", "ticket": 1})
    guest.hear("turn_granted")
    # Sampled while in its turn, so the children are known.
    daemon.until("s1", lambda row: row is not None and row["state"] == "running")
    other.say({"kind": "turn_wanted", "ticket": 1})
    guest.hear("turn_revoked")
    time.sleep(0.3)  # Let the sampling see the children; the turn passes on in any case.
    os.kill(guest.pid, signal.SIGKILL)
    other.hear("turn_granted")
    assert all(alive(child) for child in guest.children)
    row = daemon.session("s1")
    if row is not None:
        assert row["state"] == "leaving"
    for child in guest.children:
        os.kill(child, signal.SIGKILL)
    daemon.until("s1", lambda row: row is None)


def test_a_stopped_kernel_keeps_its_session_until_it_is_gone(daemon: Daemon) -> None:
    guest = daemon.guest_process("s1", bytes=60 * MIB)
    os.kill(guest.pid, signal.SIGSTOP)
    row = daemon.until("s1", lambda row: row is not None and row["persistent_bytes"] >= 60 * MIB)
    assert row is not None
    assert row["state"] == "none"
    os.kill(guest.pid, signal.SIGKILL)
    daemon.until("s1", lambda row: row is None)


def test_a_kernel_that_closed_its_connection_is_leaving_with_its_bytes_until_it_ends(daemon: Daemon) -> None:
    guest, other = daemon.guest_process("s1", bytes=60 * MIB), daemon.guest("other")
    guest.say({"kind": "turn_wanted", "ticket": 1})
    epoch = guest.hear("turn_granted")["epoch"]
    guest.say({"kind": "turn_released", "epoch": epoch, "resident_bytes": resident_bytes(guest.pid)})
    daemon.until("s1", lambda row: row is not None and row["persistent_bytes"] >= 60 * MIB)
    guest.say("close")
    guest.hear("hung_up")
    row = daemon.until("s1", lambda row: row is not None and row["state"] == "leaving")
    assert row is not None
    assert row["persistent_bytes"] >= 60 * MIB
    other.say({"kind": "turn_wanted", "ticket": 1})
    other.hear("turn_granted")
    os.kill(guest.pid, signal.SIGKILL)
    daemon.until("s1", lambda row: row is None)


def test_a_guest_that_lost_its_connection_comes_back_with_its_key_and_totals(daemon: Daemon) -> None:
    guest = daemon.guest("s1", name="a.ipynb", path="x/a.ipynb")
    key = guest.heard[0]["key"]
    guest.say({"kind": "turn_wanted", "ticket": 1})
    epoch = guest.hear("turn_granted")["epoch"]
    guest.say({"kind": "progress", "epoch": epoch, "iterations": 4, "busy_s": 0.1})
    daemon.until("s1", lambda row: row is not None and row["iterations"] == 4)
    guest.close()
    daemon.until("s1", lambda row: row is not None and row["state"] == "leaving")
    back = daemon.guest("s1", key=key, persistent_bytes=70 * MIB, holding=True)
    assert back.heard[0]["key"] == key
    row = daemon.session("s1")
    assert row is not None
    assert (row["name"], row["iterations"]) == ("a.ipynb", 4)
    assert row["state"] in ("running", "holding")


def test_a_second_connection_with_the_key_replaces_the_first(daemon: Daemon) -> None:
    first = daemon.guest("s1")
    second = daemon.guest("s1", key=first.heard[0]["key"])
    assert first.hang_up()
    second.say({"kind": "turn_wanted", "ticket": 1})
    second.hear("turn_granted")
    assert [row["id"] for row in daemon.state()["sessions"]] == ["s1"]


def test_a_living_session_is_not_taken_by_who_lacks_its_key(daemon: Daemon) -> None:
    daemon.guest("s1")
    thief = daemon.talker({"role": "guest", "session": "s1", "key": "guessed"})
    assert thief.hear("failed")["code"] == "not_allowed"
    assert thief.hang_up()
    assert daemon.session("s1") is not None


def test_a_peer_that_is_not_a_process_here_is_watched_by_its_socket(daemon: Daemon) -> None:
    """A socket pair's other end: whatever its process does, the connection's end is the lease's."""
    guest = daemon.guest("s1")
    guest.socket.shutdown(socket.SHUT_RDWR)
    daemon.until("s1", lambda row: row is not None and row["state"] == "leaving")


def test_sessions_are_known_again_after_the_backend_was_killed(daemon: Daemon) -> None:
    with daemon.client() as client:
        guests = [daemon.guest(f"s{number}", name=f"{number}.ipynb") for number in range(3)]
        client.act("priority", "s1", "high")
        client.act("pinned", "s2", "true")
    guests[0].say({"kind": "turn_wanted", "ticket": 1})
    guests[0].hear("turn_granted")
    daemon.kill()
    for guest in guests:
        assert guest.hang_up()
    daemon.start()
    for number, guest in enumerate(guests):
        # What guests say when they come back: the key is an earlier backend's.
        again = daemon.guest(
            f"s{number}",
            key=guest.heard[0]["key"],
            name=f"{number}.ipynb",
            holding=number == 0,
            persistent_bytes=(number + 1) * 100 * MIB,
        )
        if number == 0:
            again.hear("turn_granted")
    rows = {row["id"]: row for row in daemon.state()["sessions"]}
    assert set(rows) == {"s0", "s1", "s2"}
    assert rows["s0"]["turn"] == "held"
    assert [rows[f"s{number}"]["priority"] for number in range(3)] == ["normal", "high", "normal"]
    assert rows["s2"]["pinned"]
    assert rows["s0"]["persistent_bytes"] == 100 * MIB


def test_two_that_had_turns_when_the_backend_died_do_not_keep_both_for_long(daemon: Daemon) -> None:
    """Only one had it really; both say so to the new backend, which asks for one back."""
    first, second = daemon.guest("s1", holding=True), daemon.guest("s2", holding=True)
    epochs = {}
    for guest in (first, second):
        epochs[guest] = guest.hear("turn_granted")["epoch"]
    for guest in (first, second):
        guest.say({"kind": "turn_released", "epoch": epochs[guest]})
    for name in ("s1", "s2"):
        daemon.until(name, lambda row: row is not None and row["state"] == "holding")


def test_a_restarted_kernel_takes_its_session_over_while_the_old_process_is_leaving(
    daemon: Daemon, wait_until: Callable[..., None]
) -> None:
    server = daemon.talker({"role": "server"})
    server.say({"kind": "announce", "request": 1, "session": "s1", "token": "token-one", "incarnation": 1, "name": "a"})
    server.hear("done", request=1)
    old = daemon.guest_process("s1", {"token": "token-one", "incarnation": 1}, bytes=40 * MIB)
    old.say({"kind": "turn_wanted", "ticket": 1})
    old.hear("turn_granted")
    server.say({"kind": "announce", "request": 2, "session": "s1", "token": "token-two", "incarnation": 2, "name": "a"})
    server.hear("done", request=2)
    old.say("close")
    old.hear("hung_up")
    new = daemon.guest_process("s1", {"token": "token-two", "incarnation": 2})
    new.say({"kind": "turn_wanted", "ticket": 1})
    new.hear("turn_granted")
    rows = {row["id"]: row for row in daemon.state()["sessions"]}
    assert rows["s1"]["incarnation"] == 2
    assert rows["s1~1"]["state"] == "leaving"
    os.kill(old.pid, signal.SIGKILL)
    wait_until(lambda: [row["id"] for row in daemon.state()["sessions"]] == ["s1"])
