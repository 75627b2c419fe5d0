"""What a peer may send that isn't right: each is told, or ends its own connection, and nobody else notices."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from typing import Any

import pytest

from jupyter_salus.protocol.framing import MAX_REQUEST_BYTES, encode
from tests.daemon.speaking import PATIENCE_S, Daemon

HELLO = {"kind": "hello", "role": "client", "protocol": [1, 1], "version": "test"}


def still_serves(daemon: Daemon) -> None:
    assert daemon.state()["backend"]["healthy"]
    assert daemon.process.poll() is None


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        struct.pack(">I", MAX_REQUEST_BYTES + 1),
        struct.pack(">I", 3) + b"{{{",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 4) + b"\xff\xfe\xfd\xfc",
        struct.pack(">I", 50_000) + b"[" * 50_000,
    ],
    ids=["http", "oversized", "no JSON", "no object", "no text", "nested"],
)
@pytest.mark.parametrize("greeted", [False, True])
def test_garbage_ends_the_connection_with_a_word(daemon: Daemon, garbage: bytes, greeted: bool) -> None:
    peer = daemon.talker()
    if greeted:
        peer.say(HELLO)
        peer.hear("welcome")
    peer.raw(garbage)
    assert peer.hear("failed")["code"] == "bad_frame"
    assert peer.hang_up()
    still_serves(daemon)


def test_random_bytes_harm_nobody(daemon: Daemon) -> None:
    chance = random.Random(20)
    for _ in range(20):
        peer = daemon.talker()
        try:
            peer.raw(chance.randbytes(chance.randrange(1, 2000)))
            peer.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the backend hung up already
        assert peer.hang_up()
    still_serves(daemon)


def test_half_a_frame_and_an_end_harms_nobody(daemon: Daemon) -> None:
    peer = daemon.talker()
    peer.raw(encode(HELLO)[:-3])
    peer.close()
    still_serves(daemon)


def test_a_frame_may_come_byte_by_byte_and_several_at_once(daemon: Daemon) -> None:
    peer = daemon.talker()
    for byte in encode(HELLO):
        peer.raw(bytes([byte]))
    peer.hear("welcome")
    peer.say(*({"kind": "ask", "request": number, "what": "metrics"} for number in range(50)))
    assert [peer.hear("answer")["request"] for _ in range(50)] == list(range(50))


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ({"kind": "turn_wanted", "ticket": 1}, "bad_message"),
        ({"kind": "ask", "request": 1, "what": "state"}, "bad_message"),
        ({"kind": "no_such_thing"}, "unknown_message"),
        ({**HELLO, "role": "emperor"}, "bad_value"),
        ({**HELLO, "role": "guard"}, "not_possible"),
        ({**HELLO, "role": "guest"}, "bad_message"),
        ({**HELLO, "role": "guest", "session": "x" * 201}, "bad_message"),
        ({**HELLO, "role": "guest", "session": "s", "priority": "urgent"}, "bad_value"),
        ({**HELLO, "protocol": [2, 9]}, "protocol_mismatch"),
        ({**HELLO, "protocol": [0, 0]}, "protocol_mismatch"),
        ({**HELLO, "protocol": []}, "protocol_mismatch"),
        ({**HELLO, "protocol": "1"}, "bad_message"),
    ],
)
def test_a_wrong_first_message_is_refused(daemon: Daemon, first: dict[str, Any], code: str) -> None:
    peer = daemon.talker()
    peer.say(first)
    failed = peer.hear("failed")
    assert failed["code"] == code
    assert failed["message"].startswith("cannot")
    assert peer.hang_up()
    assert daemon.state()["sessions"] == []


def test_a_mismatch_says_who_speaks_what(daemon: Daemon) -> None:
    peer = daemon.talker({"role": "client", "protocol": [7, 9]})
    failed = peer.hear("failed")
    assert "it speaks protocol [7, 9], this backend [1, 1]" in failed["message"]
    assert failed["detail"]["protocol"] == [1, 1]


def test_a_newer_peer_is_spoken_to_in_the_shared_version(daemon: Daemon) -> None:
    peer = daemon.talker({"role": "client", "protocol": [1, 5], "from_the_future": {"a": [1]}})
    assert peer.hear("welcome")["protocol"] == 1


def test_after_the_hello_wrong_messages_are_answered_and_the_connection_goes_on(daemon: Daemon) -> None:
    peer = daemon.talker({"role": "client"})
    peer.hear("welcome")
    wrong: list[tuple[dict[str, Any], str]] = [
        (HELLO, "bad_message"),
        ({"kind": "from_the_future", "request": 4}, "unknown_message"),
        ({"kind": "ask", "request": 5, "what": 7}, "bad_message"),
        ({"kind": "ask", "request": 6, "what": "weather"}, "bad_value"),
        ({"kind": "turn_wanted", "ticket": 1}, "bad_message"),
        ({"kind": "announce", "request": 7, "session": "s", "token": "t" * 9, "incarnation": 1}, "not_allowed"),
        ({"kind": "act", "request": 8, "verb": "evict", "target": "nobody"}, "unknown_session"),
    ]
    for said, code in wrong:
        peer.say(said)
        failed = peer.hear("failed")
        assert failed["code"] == code
        assert failed.get("request") == said.get("request")
    peer.say({"kind": "ask", "request": 9, "what": "state"})
    assert peer.hear("answer")["request"] == 9


def test_messages_out_of_order_change_nothing(daemon: Daemon) -> None:
    guest = daemon.guest("s1")
    guest.say(
        {"kind": "turn_released", "epoch": 99},
        {"kind": "turn_withdrawn", "ticket": 99},
        {"kind": "cell_finished", "cell": 99},
        {"kind": "progress", "epoch": 99, "iterations": 1, "busy_s": 1.0},
        {"kind": "turn_wanted", "ticket": 1},
    )
    guest.hear("turn_granted", ticket=1)
    assert daemon.session("s1")["iterations"] == 0  # type: ignore[index]


def test_who_does_not_read_is_dropped_and_the_others_are_told_as_before(daemon: Daemon) -> None:
    deaf = daemon.guest("s1")
    asks = encode({"kind": "ask", "request": 1, "what": "metrics"}) * 20
    deaf.socket.settimeout(0.2)
    deadline = time.monotonic() + PATIENCE_S
    while "unread, the limit is" not in daemon.log():
        assert time.monotonic() < deadline
        try:
            deaf.socket.sendall(asks)
        except TimeoutError:
            pass  # nobody reads us while our own answers lie unread
        except (BrokenPipeError, ConnectionResetError):
            break
    daemon.until("s1", lambda row: row is None or row["state"] == "leaving")
    assert "unread, the limit is" in daemon.log()
    still_serves(daemon)


def test_a_flood_is_read_more_slowly_and_answered_all_the_same(daemon: Daemon) -> None:
    peer = daemon.talker({"role": "guest", "session": "s1"})
    peer.hear("welcome")
    flood = encode({"kind": "turn_withdrawn", "ticket": 5}) * 10_000
    peer.raw(flood + encode({"kind": "turn_wanted", "ticket": 1}))
    peer.hear("turn_granted", ticket=1)


def test_the_sockets_are_for_their_user_alone(daemon: Daemon) -> None:
    assert os.stat(daemon.path).st_mode & 0o777 == 0o600
    assert os.stat(daemon.admin_path).st_mode & 0o777 == 0o600
