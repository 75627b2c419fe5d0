"""Turns over the wire: granted, revoked, passed on, withdrawn; and what people see of it."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_salus.backend.devices.processes import resident_bytes
from tests.daemon.speaking import Daemon

MIB = 1024**2


def test_a_lone_session_gets_its_turn_and_gives_it_back(daemon: Daemon) -> None:
    guest = daemon.guest("s1", name="train.ipynb", path="vision/train.ipynb", kernel_id="k1")
    assert guest.heard[0]["key"]
    assert guest.heard[0]["memory_mode"] == "host"
    guest.say({"kind": "cell_started", "cell": 1, "cell_id": "c1"}, {"kind": "turn_wanted", "ticket": 7})
    granted = guest.hear("turn_granted", ticket=7)
    row = daemon.session("s1")
    assert row is not None
    assert (row["state"], row["turn"], row["lane"], row["cell_id"]) == ("running", "held", "host/1", "c1")
    assert (row["name"], row["path"], row["kernel_id"], row["own"], row["here"]) == (
        "train.ipynb",
        "vision/train.ipynb",
        "k1",
        True,
        False,
    )
    guest.say(
        {"kind": "progress", "epoch": granted["epoch"], "iterations": 5, "busy_s": 0.5, "frameworks": ["numpy"]},
        {"kind": "turn_released", "epoch": granted["epoch"], "resident_bytes": 50 * MIB},
        {"kind": "cell_finished", "cell": 1},
    )
    row = daemon.until("s1", lambda row: row is not None and row["state"] == "holding")
    assert row is not None
    assert (row["turn"], row["iterations"], row["frameworks"], row["turns"]) == ("none", 5, ["numpy"], 1)
    assert row["cell_id"] is None
    assert row["used_s"] > 0


def test_the_turn_passes_to_who_waits_when_it_is_revoked(daemon: Daemon) -> None:
    first, second = daemon.guest("s1", name="a.ipynb"), daemon.guest("s2", name="b.ipynb")
    first.say({"kind": "turn_wanted", "ticket": 1})
    epoch = first.hear("turn_granted")["epoch"]
    second.say({"kind": "turn_wanted", "ticket": 1})
    explained = second.hear("wait_explained", ticket=1)
    assert "a.ipynb" in explained["text"]
    assert (explained["behind"], explained["position"]) == ("s1", 1)
    revoked = first.hear("turn_revoked", epoch=epoch)
    assert revoked["deadline"] > explained["since"]
    first.say({"kind": "turn_released", "epoch": epoch, "wants_more": True, "ticket": 2})
    next_epoch = second.hear("turn_granted", ticket=1)["epoch"]
    assert next_epoch > epoch
    second.say({"kind": "turn_released", "epoch": next_epoch})
    assert first.hear("turn_granted", ticket=2)["epoch"] > next_epoch


def test_a_waiting_guest_is_told_when_the_reason_of_its_wait_changes(daemon: Daemon) -> None:
    first, second, third = (daemon.guest(f"s{number}", name=f"{number}.ipynb") for number in range(3))
    first.say({"kind": "turn_wanted", "ticket": 1})
    epoch = first.hear("turn_granted")["epoch"]
    second.say({"kind": "turn_wanted", "ticket": 1})
    second.hear("wait_explained")
    third.say({"kind": "turn_wanted", "ticket": 5})
    assert "0.ipynb" in third.hear("wait_explained", ticket=5, position=2)["text"]
    first.say({"kind": "turn_released", "epoch": epoch})
    second.hear("turn_granted")
    assert "1.ipynb" in third.hear("wait_explained", ticket=5, position=1)["text"]


def test_a_late_release_of_an_old_epoch_changes_nothing(daemon: Daemon) -> None:
    guest = daemon.guest("s1")
    guest.say({"kind": "turn_wanted", "ticket": 1})
    epoch = guest.hear("turn_granted")["epoch"]
    guest.say({"kind": "turn_released", "epoch": epoch - 1})
    assert daemon.session("s1")["state"] == "running"  # type: ignore[index]


def test_a_withdrawn_wait_is_over(daemon: Daemon) -> None:
    first, second = daemon.guest("s1"), daemon.guest("s2")
    first.say({"kind": "turn_wanted", "ticket": 1})
    epoch = first.hear("turn_granted")["epoch"]
    second.say({"kind": "turn_wanted", "ticket": 1})
    daemon.until("s2", lambda row: row is not None and row["state"] == "waiting")
    second.say({"kind": "turn_withdrawn", "ticket": 1})
    daemon.until("s2", lambda row: row is not None and row["turn"] == "none" and row["reason"] is None)
    first.say({"kind": "turn_released", "epoch": epoch})
    daemon.until("s1", lambda row: row is not None and row["state"] == "holding")
    assert daemon.session("s2")["turns"] == 0  # type: ignore[index]


def test_what_the_core_refuses_is_answered_and_the_connection_goes_on(daemon: Daemon) -> None:
    guest = daemon.guest("s1")
    guest.say({"kind": "turn_wanted", "ticket": 1})
    epoch = guest.hear("turn_granted")["epoch"]
    guest.say({"kind": "turn_wanted", "ticket": 2})
    assert guest.hear("failed")["code"] == "not_possible"
    guest.say({"kind": "turn_released", "epoch": epoch, "wants_more": True})
    assert guest.hear("failed")["code"] == "bad_message"
    guest.say({"kind": "progress", "epoch": epoch, "iterations": -1, "busy_s": 1.0})
    assert guest.hear("failed")["code"] == "bad_message"
    guest.say({"kind": "welcome", "protocol": 1, "version": "1", "pid": 1})
    assert guest.hear("failed")["code"] == "bad_message"
    guest.say({"kind": "turn_released", "epoch": epoch})
    daemon.until("s1", lambda row: row is not None and row["state"] == "holding")


def test_reported_memory_becomes_persistent_and_ephemeral_bytes(daemon: Daemon) -> None:
    guest = daemon.guest("s1", persistent_bytes=100 * MIB)
    guest.say({"kind": "turn_wanted", "ticket": 1})
    epoch = guest.hear("turn_granted")["epoch"]
    guest.say(
        {
            "kind": "progress",
            "epoch": epoch,
            "iterations": 1,
            "busy_s": 0.1,
            "resident_bytes": 120 * MIB,
            "peak_bytes": 1000 * MIB,
        }
    )
    row = daemon.until("s1", lambda row: row is not None and row["ephemeral_bytes"] > 0)
    assert row is not None
    assert row["persistent_bytes"] == 120 * MIB
    assert row["ephemeral_bytes"] == 880 * MIB


def test_a_session_that_grew_past_the_capacity_waits_while_others_run(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon("--device=host", "--capacity=256MiB")
    grown, other = daemon.guest_process("grown", {"name": "big.ipynb"}), daemon.guest_process("other")
    grown.say({"kind": "turn_wanted", "ticket": 1})
    epoch = grown.hear("turn_granted")["epoch"]
    grown.say("grow")
    grown.seen("grown")
    held = resident_bytes(grown.pid)
    assert held is not None
    other.say({"kind": "turn_wanted", "ticket": 1})
    daemon.until("other", lambda row: row is not None and row["turn"] == "wanted")
    # By the quantum's end, or earlier by the growth that was seen from outside.
    grown.seen("turn_revoked")
    grown.say({"kind": "turn_released", "epoch": epoch, "wants_more": True, "ticket": 2, "resident_bytes": held})
    theirs = other.hear("turn_granted")["epoch"]
    row = daemon.until("grown", lambda row: row is not None and row["state"] == "waiting" and row["reason"] is not None)
    assert row is not None
    assert row["reason"]["code"] == "over_capacity"
    assert "more than the device has" in row["reason"]["text"]
    assert abs(row["persistent_bytes"] - held) <= 0.1 * held
    other.say({"kind": "turn_released", "epoch": theirs})
    # Nobody else can run now, so it goes on, and the state says that it is more than there is.
    grown.hear("turn_granted", ticket=2)
    row = daemon.session("grown")
    assert row is not None
    assert (row["state"], row["reason"]["code"]) == ("running", "over_capacity")
