"""Turns at the gate: a guest's boundaries end them, a deadline does in mid-iteration, an interrupt lets one call pass."""

from __future__ import annotations

from tests.daemon.gpu import MIB, Gpu
from tests.daemon.speaking import Talker


def guest_of(gpu: Gpu, session: str) -> Talker:
    """A guest in the test's own process, of which the guarded ones are children, in a cell."""
    guest = gpu.daemon.guest(session, guarded=True)
    assert guest.heard[0]["memory_mode"] == "blocks"
    guest.say({"kind": "cell_started", "cell": 1, "cell_id": "c1"})
    return guest


def test_the_first_touch_in_a_cell_gets_a_turn_that_ends_with_the_cell(gpu: Gpu) -> None:
    guest = guest_of(gpu, "s1")
    assert gpu.until("s1", "none")["turns"] == 0
    child, before = gpu.tensor("s1", 32 * MIB)
    epoch = guest.hear("turn_granted")["epoch"]
    assert gpu.until("s1", "running")["turns"] == 1
    guest.say({"kind": "progress", "epoch": epoch, "iterations": 3, "busy_s": 0.1})
    guest.say({"kind": "turn_released", "epoch": epoch}, {"kind": "cell_finished", "cell": 1})
    row = gpu.until("s1", "holding")
    assert (row["iterations"], row["cell_id"]) == (3, None)
    assert row["persistent_bytes"] >= 32 * MIB
    # Outside cells a touch has a turn that ends by itself.
    assert gpu.digest(child, 32 * MIB) == before
    gpu.until("s1", "holding")


def test_a_revoked_turn_ends_at_the_guest_s_boundary_and_goes_on_with_the_next(gpu: Gpu) -> None:
    guest = guest_of(gpu, "s1")
    child, before = gpu.tensor("s1", 32 * MIB)
    epoch = guest.hear("turn_granted")["epoch"]
    gpu.act("yield", "s1")
    guest.hear("turn_revoked", epoch=epoch)
    guest.say({"kind": "turn_released", "epoch": epoch, "wants_more": True, "ticket": 5})
    assert guest.hear("turn_granted", ticket=5)["epoch"] > epoch
    assert gpu.digest(child, 32 * MIB) == before
    assert gpu.until("s1", "running")["turns"] == 2


def test_a_turn_that_reaches_no_boundary_is_stopped_where_it_is(gpu: Gpu) -> None:
    guest = guest_of(gpu, "s1")
    child, before = gpu.tensor("s1", 32 * MIB)
    epoch = guest.hear("turn_granted")["epoch"]
    gpu.act("yield", "s1")
    guest.hear("turn_revoked", epoch=epoch)
    # The guest says nothing, the gate closes; what touches next has the next turn.
    row = gpu.daemon.until("s1", lambda row: row is not None and row["turn"] == "none")
    assert row is not None
    again = gpu.begin(child, f"digest(at, {32 * MIB})")
    newer = guest.hear("turn_granted")["epoch"]
    assert newer > epoch
    assert child.end(again) == before
    # The boundary that the guest comes to now is one of the new turn's.
    guest.say({"kind": "turn_released", "epoch": epoch, "wants_more": True, "ticket": 9})
    assert guest.hear("turn_granted", ticket=9)["epoch"] == newer


def test_what_a_guest_gives_back_unasked_in_its_cell_ends_no_turn(gpu: Gpu) -> None:
    guest = guest_of(gpu, "s1")
    child, before = gpu.tensor("s1", 32 * MIB)
    epoch = guest.hear("turn_granted")["epoch"]
    guest.say({"kind": "turn_released", "epoch": epoch})
    assert gpu.digest(child, 32 * MIB) == before
    assert gpu.until("s1", "running")["turns"] == 1


def test_an_interrupt_lets_no_call_pass_whose_memory_is_out(gpu: Gpu) -> None:
    server = gpu.daemon.talker({"role": "server"})
    server.hear("welcome")
    child, before = gpu.tensor("s1", 32 * MIB)
    gpu.until("s1", "holding")
    gpu.act("evict", "s1")
    gpu.until("s1", "evicted")
    blocker = gpu.world.child(guard=None)
    blocker.do("start()")
    blocker.do(f"alloc({64 * MIB})")
    reading = gpu.begin(child, "digest(at, 64)")
    gpu.daemon.until("s1", lambda row: row is not None and row["turn"] == "wanted" and row["reason"])
    server.say({"kind": "interrupt", "session": "s1"})
    # Its memory is out: no call can pass without it. It waits on, and is whole when there is room.
    assert gpu.until("s1", "waiting", "evicted")
    blocker.stop()
    child.end(reading)
    assert gpu.digest(child, 32 * MIB) == before


def test_children_of_a_kernel_are_of_its_session_and_their_memory_counts_with_it(gpu: Gpu) -> None:
    guest_of(gpu, "s1")
    first, of_first = gpu.tensor("s1", 32 * MIB)
    second, of_second = gpu.tensor("s1", 40 * MIB)
    guest_said = [row["id"] for row in gpu.daemon.state()["sessions"]]
    assert guest_said == ["s1"]
    gpu.daemon.peers[0].say({"kind": "cell_finished", "cell": 1})
    row = gpu.daemon.until("s1", lambda row: row is not None and row["state"] == "holding")
    assert row is not None
    assert row["persistent_bytes"] >= 72 * MIB
    gpu.act("evict", "s1")
    gpu.until("s1", "evicted")
    gpu.until_used(lambda used: used < 24 * MIB, "both processes' memory out")
    assert gpu.digest(second, 40 * MIB) == of_second
    assert gpu.digest(first, 32 * MIB) == of_first
    first.stop()
    gpu.daemon.until("s1", lambda row: row is not None and row["persistent_bytes"] < 60 * MIB)
    assert gpu.digest(second, 40 * MIB) == of_second
