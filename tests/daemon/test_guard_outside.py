"""Memory that processes outside have: a session that asks for it waits, keeps nobody from running, and can be interrupted."""

from __future__ import annotations

import pytest

from tests.daemon.gpu import MIB, Gpu
from tests.daemon.speaking import Wire
from tests.native.world import Child, ChildError

OUT_OF_MEMORY = 2


def outside(gpu: Gpu, size: int) -> Child:
    """A process without a guard that holds `size` bytes and a context."""
    child = gpu.world.child(guard=None)
    child.do("start()")
    child.do(f"alloc({size})")
    return child


def until_aside(gpu: Gpu, session: str) -> Wire:
    """The row of a session once it waits for nothing but processes outside."""

    def aside(row: Wire | None) -> bool:
        return row is not None and row["reason"] is not None and "processes outside use" in row["reason"]["text"]

    row = gpu.daemon.until(session, aside)
    assert row is not None
    assert (row["state"], row["reason"]["code"]) == ("waiting", "no_room")
    return row


def test_a_growing_session_waits_for_what_processes_outside_have_and_gets_it_when_they_end(gpu: Gpu) -> None:
    child, before = gpu.tensor("s1", 24 * MIB)
    foreign = outside(gpu, 32 * MIB)
    growing = gpu.begin(child, f"write(alloc({40 * MIB}), bytes({40 * MIB}))")
    row = until_aside(gpu, "s1")
    assert not child.ready(growing)
    # It keeps nobody from running, and isn't charged.
    other, theirs = gpu.tensor("s2", 2 * MIB)
    assert gpu.digest(other, 2 * MIB) == theirs
    later = gpu.daemon.session("s1")
    assert later is not None
    assert later["used_s"] == pytest.approx(row["used_s"], abs=0.3)
    other.stop()
    foreign.stop()
    child.end(growing)
    assert gpu.digest(child, 24 * MIB) == before
    assert any("waits for memory that processes outside have" in text for text in gpu.words())
    assert not any("got no memory" in text for text in gpu.words())


def test_a_wait_for_processes_outside_ends_with_an_interrupt_and_nothing_else_is_lost(gpu: Gpu) -> None:
    server = gpu.daemon.talker({"role": "server"})
    server.hear("welcome")
    child, before = gpu.tensor("s1", 24 * MIB)
    outside(gpu, 32 * MIB)
    growing = gpu.begin(child, f"alloc({40 * MIB})")
    until_aside(gpu, "s1")
    server.say({"kind": "interrupt", "session": "s1"})
    with pytest.raises(ChildError) as told:
        child.end(growing)
    assert told.value.code == OUT_OF_MEMORY
    row = gpu.until("s1", "holding")
    assert row["reason"] is None
    assert gpu.digest(child, 24 * MIB) == before


def test_what_even_an_empty_device_could_never_give_is_refused_while_others_use_it(gpu: Gpu) -> None:
    outside(gpu, 32 * MIB)
    child = gpu.process("s1")
    with pytest.raises(ChildError) as told:
        child.do(f"alloc({90 * MIB})")
    assert told.value.code == OUT_OF_MEMORY
