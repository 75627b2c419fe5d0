"""The connection: begun late, made again, given up when nobody answers, and proof against garbage."""

from __future__ import annotations

import json
import os
import random
import signal
import struct

import pytest

from tests.native.backend import until
from tests.native.world import Child, ChildError, World

MIB = 1 << 20


def begin(world: World, **environment: str) -> Child:
    child = world.child(**environment)
    child.do("context = start()")
    return child


def test_a_process_that_never_loads_the_driver_opens_nothing(world: World) -> None:
    backend = world.backend()
    child = world.child(begin="import ctypes, socket, json; ctypes.CDLL(None).getpid()")
    assert len(os.listdir(f"/proc/{child.pid}/task")) == 1
    assert backend.guards == []


def test_without_an_address_nothing_is_wrapped(world: World) -> None:
    child = world.child(JUPYTER_SALUS_SOCKET="")
    child.do("context = start(); a = alloc(4 << 20); write(a, b'x' * 100)")
    assert child.state()["active"] == 0
    assert child.do("read(a, 3) == b'xxx'")


def test_the_hello_tells_who_and_how_things_stand(world: World) -> None:
    backend = world.backend()
    child = begin(world)
    hello = backend.guard().wait("hello")
    assert hello["role"] == "guard"
    assert hello["protocol"] == [1, 1]
    assert (hello["pid"], hello["session"], hello["gate"]) == (child.pid, "s1", "shut")


def test_memory_is_reported_when_it_changes(world: World) -> None:
    backend = world.backend()
    child = begin(world)
    child.do("a = alloc(8 << 20)")
    backend.guard().wait("memory", persistent_bytes=8 * MIB)
    child.do("free(a)")
    until(lambda: backend.guard().heard[-1].get("persistent_bytes") == 0, "the report of the free")


def test_a_connection_that_ends_is_made_again_and_the_turn_goes_on(world: World) -> None:
    backend = world.backend()
    child = begin(world)
    child.do("a = alloc(8 << 20)")
    backend.guard().hang_up()
    again = backend.guard(1)
    hello = again.wait("hello")
    assert (hello["gate"], hello["epoch"], hello["persistent_bytes"]) == ("open", 1, 8 * MIB)
    child.do("write(a, b'x' * 100)")
    again.epoch = 5
    again.drain()
    again.evict(1)
    again.hang_up()
    assert backend.guard(2).wait("hello")["evicted_bytes"] == 8 * MIB


def test_where_the_backend_governs_no_device_nobody_waits(world: World) -> None:
    backend = world.backend(easy=False)
    child = world.child(JUPYTER_SALUS_PATIENCE_S="3600")
    starting = child.begin("globals().update(context=start())")
    guard = backend.guard()
    guard.wait("hello")
    guard.say("failed", code="not_possible", message="cannot take in a guard: the device is this host's memory")
    child.end(starting)
    child.do("call('cuCtxSetCurrent', context); a = alloc(4 << 20); write(a, b'x' * 100)")
    assert child.state()["failed_open"] == 1
    guard.wait_closed()


def test_another_refusal_is_no_reason_to_open(world: World) -> None:
    backend = world.backend(easy=False)
    child = world.child()
    starting = child.begin("globals().update(context=start())")
    backend.guard().say("failed", code="unknown_session", message="not yet")
    again = backend.guard(1)
    again.welcome()
    again.wait("touched")
    assert not child.ready(starting)
    again.open()
    child.end(starting)


def test_waits_are_told_to_a_backend_that_came_back(world: World) -> None:
    backend = world.backend()
    child = begin(world)
    guard = backend.guard()
    guard.drain()
    touches = guard.count("touched")
    waiting = child.begin("call('cuCtxSetCurrent', context); a = alloc(4 << 20)")
    until(lambda: guard.count("touched") > touches, "the touch")
    backend.easy = False
    guard.hang_up()
    again = backend.guard(1)
    again.welcome()
    again.wait("touched", ticket=guard.heard[-1].get("ticket", touches + 1))
    again.open()
    child.end(waiting)


def test_where_nobody_answers_the_gate_opens_after_a_while(world: World) -> None:
    child = begin(world, JUPYTER_SALUS_PATIENCE_S="0.5")
    assert child.state()["failed_open"] == 1
    child.do("a = alloc(4 << 20); write(a, b'x' * 100)")
    with pytest.raises(ChildError) as caught:
        child.do("alloc(1 << 40)")
    assert caught.value.code == 2
    backend = world.backend()
    guard = backend.guard()
    assert guard.wait("hello")["gate"] == "open"
    guard.drain()
    guard.evict(1)
    guard.restore(2)


def test_a_backend_that_keeps_silent_counts_as_nobody(world: World) -> None:
    backend = world.backend(easy=False)
    child = begin(world, JUPYTER_SALUS_PATIENCE_S="0.5")
    assert backend.guard().wait("hello")
    assert child.state()["gate"] == "open"


def test_a_backend_that_falls_silent_later_is_given_up_but_not_one_that_lets_wait(world: World) -> None:
    backend = world.backend()
    child = begin(world, JUPYTER_SALUS_PATIENCE_S="1")
    guard = backend.guard()
    guard.drain()
    waiting = child.begin("call('cuCtxSetCurrent', context); a = alloc(4 << 20)")
    guard.wait("ping")  # a turn that is long in coming: it asks whether anybody is there
    guard.say("pong")
    assert not child.ready(waiting)
    child.end(waiting)  # the next ping stays unanswered


def test_memory_that_is_out_comes_back_by_itself_when_the_backend_is_gone(world: World) -> None:
    backend = world.backend()
    child = begin(world, JUPYTER_SALUS_PATIENCE_S="0.5")
    child.do("a = alloc(96 << 20); data = random_bytes(96 << 20); write(a, data)")
    backend.guard().drain()
    backend.guard().evict(1)
    other = world.child(guard=None)
    other.do("start(); taken = alloc(200 << 20)")
    backend.stop()
    waiting = child.begin("call('cuCtxSetCurrent', context); same = read(a, 96 << 20) == data")
    until(lambda: child.state()["evicted_bytes"] < 96 * MIB or child.state()["failed_open"] == 0, "some tries")
    assert not child.ready(waiting)
    other.do("free(taken)")
    child.end(waiting)
    assert child.do("same")


def test_unknown_words_are_answered_and_unknown_fields_ignored(world: World) -> None:
    backend = world.backend()
    child = begin(world)
    guard = backend.guard()
    guard.say("sing", song=[1, {"a": None}])
    assert guard.wait("error")["code"] == "unknown_kind"
    guard.say("ping", extra={"deep": [[[]]]}, more="ü\U0001f600")
    guard.wait("pong")
    assert child.state()["gate"] == "open"


@pytest.mark.parametrize(
    "frame",
    [
        b"{",
        b"[]",
        b'{"kind": "ping"} x',
        b'{"kind": "ping", "kind": "pong"}',
        b'{"kind": "\xff"}',
        b'{"kind": 01}',
        b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"kind": "\\ud800"}',
    ],
    ids=range(8),
)
def test_a_frame_that_is_no_object_ends_the_connection_and_nothing_else(world: World, frame: bytes) -> None:
    backend = world.backend()
    child = begin(world)
    backend.guard().raw(frame)
    assert backend.guard().wait("error")["code"] == "bad_frame"
    backend.guard().wait_closed()
    assert backend.guard(1).wait("hello")
    child.do("a = alloc(4 << 20)")


def test_a_frame_beyond_the_limit_is_refused_before_it_is_held(world: World) -> None:
    backend = world.backend()
    child = begin(world)
    backend.guard().raw(b"x", length=1 << 30)
    backend.guard().wait_closed()
    assert backend.guard(1).wait("hello")
    child.do("a = alloc(4 << 20)")


def test_split_and_joined_frames_are_read(world: World) -> None:
    backend = world.backend()
    begin(world)
    guard = backend.guard()
    frame = b'{"kind":"ping"}'
    both = (struct.pack(">I", len(frame)) + frame) * 2
    for byte in both:
        guard.connection.sendall(bytes([byte]))
    until(lambda: guard.count("pong") == 2, "two answers")


def test_garbage_never_harms_the_guard_under_the_sanitizers(world: World, sanitized_console: list[str]) -> None:
    """Random frames, half of them nearly right, against the guard built with the address and behaviour sanitizers."""
    backend = world.backend()
    child = Child({**world.environment, "JUPYTER_SALUS_SOCKET": str(world.socket)}, sanitized_console)
    world.children.append(child)
    guard = backend.guard()
    chance = random.Random(int(os.environ.get("SALUS_SEED", "1")))
    kinds = [
        "open_gate",
        "close_gate",
        "evict_blocks",
        "restore_blocks",
        "room_granted",
        "interrupt",
        "prepare_arena",
        "x",
    ]
    seen = 0
    for _ in range(1500):
        if chance.random() < 0.5:
            body = bytearray(
                json.dumps(
                    {
                        "kind": chance.choice(kinds),
                        "epoch": chance.choice(
                            [0, 1, -1, 2**63, 2**64 - 1, 1e400 if chance.random() < 0 else 1e300, "x", None]
                        ),
                        "move": chance.randrange(1 << 40),
                        "bytes": chance.choice([0, 1, 1 << 20]),
                        "drain_s": chance.choice([0.001, -1, 1e-300, "0"]),
                        "calls": chance.choice([0, 1, 2**40]),
                        "n" * chance.randrange(60): ["\u00e9\U0001f600"] * chance.randrange(5),
                    }
                ).encode()
            )
            if chance.random() < 0.5 and body:
                body[chance.randrange(len(body))] = chance.randrange(256)
        else:
            body = bytearray(chance.randbytes(chance.randrange(200)))
        guard.raw(bytes(body), length=None if chance.random() < 0.97 else chance.randrange(1 << 32))
        if guard.closed:
            seen += 1
            guard = backend.guard(seen)
    until(lambda: child.process.poll() is not None or backend.guards[-1].count("hello") > 0, "a last hello")
    assert child.process.poll() is None
    child.stop()
    assert child.process.returncode == 0


def test_a_guard_whose_process_is_killed_ends_its_connection(world: World) -> None:
    backend = world.backend()
    child = begin(world)
    os.kill(child.pid, signal.SIGKILL)
    backend.guard().wait_closed()
