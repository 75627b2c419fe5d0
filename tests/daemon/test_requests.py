"""What servers and people ask: announcements, verbs, the state and its changes, history, journal, metrics."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_salus.errors import BadValue, NotAllowed, NotPossible, SalusError, UnknownDevice, UnknownSession
from tests.daemon.speaking import Daemon, Talker

EXAMPLES = Path(__file__).parent.parent / "wire"
STATE = json.loads((EXAMPLES / "state.json").read_text())


def server_of(daemon: Daemon) -> Talker:
    server = daemon.talker({"role": "server"})
    server.hear("welcome")
    return server


def announce(
    server: Talker, session: str, token: str = "a-token-of-its-own", incarnation: int = 1, **more: Any
) -> None:
    server.say(
        {"kind": "announce", "request": 1, "session": session, "token": token, "incarnation": incarnation, **more}
    )
    server.hear("done", request=1)


def test_an_announced_kernel_opens_its_session_with_its_token_once(daemon: Daemon) -> None:
    server = server_of(daemon)
    announce(server, "s1", name="a.ipynb", path="x/a.ipynb", kernel_id="s1", priority="low")
    assert daemon.state()["sessions"] == []
    wrong = daemon.talker({"role": "guest", "session": "s1", "token": "another-token"})
    assert wrong.hear("failed")["code"] == "not_allowed"
    daemon.guest("s1", token="a-token-of-its-own", incarnation=1)
    row = daemon.session("s1")
    assert row is not None
    assert set(row) == set(STATE["sessions"][0])
    assert (row["name"], row["path"], row["priority"], row["managed"]) == ("a.ipynb", "x/a.ipynb", "low", True)
    again = daemon.talker({"role": "guest", "session": "s1", "token": "a-token-of-its-own", "incarnation": 1})
    assert again.hear("failed")["code"] == "not_allowed"


def test_a_kernel_that_is_not_managed_is_shown_with_why_and_leaves_with_its_process(daemon: Daemon) -> None:
    server, process = server_of(daemon), daemon.guest_process("other")
    announce(server, "s1", name="r.ipynb")
    server.say({"kind": "launched", "request": 2, "session": "s1", "pid": process.pid, "unmanaged": "no ipykernel"})
    server.hear("done", request=2)
    row = daemon.session("s1")
    assert row is not None
    assert (row["state"], row["managed"], row["unmanaged_reason"]) == ("none", False, "no ipykernel")
    with daemon.client() as client:
        with pytest.raises(NotPossible, match=r"it isn't managed \(no ipykernel\)"):
            client.act("yield", "s1")
        client.act("priority", "s1", "high")
    process.process.kill()
    daemon.until("s1", lambda row: row is None)


def test_an_announcement_said_again_is_known_and_its_token_stays_spent(daemon: Daemon) -> None:
    server = server_of(daemon)
    announce(server, "s1", name="a.ipynb")
    guest = daemon.guest("s1", token="a-token-of-its-own", incarnation=1)
    announce(server_of(daemon), "s1", name="b.ipynb")
    assert daemon.session("s1")["name"] == "b.ipynb"  # type: ignore[index]
    again = daemon.talker({"role": "guest", "session": "s1", "token": "a-token-of-its-own", "incarnation": 1})
    assert again.hear("failed")["code"] == "not_allowed"
    guest.say({"kind": "turn_wanted", "ticket": 1})
    guest.hear("turn_granted")


def test_a_guest_with_an_earlier_backends_key_comes_after_its_servers_announcement(daemon: Daemon) -> None:
    server = server_of(daemon)
    announce(server, "s1", name="a.ipynb")
    server.say({"kind": "launched", "request": 2, "session": "s1", "pid": os.getpid()})
    server.hear("done", request=2)
    daemon.guest("s1", key="of-an-earlier-backend", incarnation=1)
    assert daemon.session("s1")["name"] == "a.ipynb"  # type: ignore[index]


def test_a_renamed_notebook_is_shown_by_its_new_name(daemon: Daemon) -> None:
    server = server_of(daemon)
    daemon.guest("s1", name="a.ipynb", path="a.ipynb")
    server.say({"kind": "describe", "request": 1, "session": "s1", "name": "b.ipynb", "path": "x/b.ipynb"})
    server.hear("done", request=1)
    row = daemon.session("s1")
    assert row is not None
    assert (row["name"], row["path"]) == ("b.ipynb", "x/b.ipynb")
    server.say({"kind": "describe", "request": 2, "session": "s9", "name": "b", "path": "b"})
    assert server.hear("failed", request=2)["code"] == "unknown_session"


def test_an_ended_kernel_is_gone_and_its_token_void(daemon: Daemon) -> None:
    server, guest = server_of(daemon), daemon.guest_process("s1")
    guest.say({"kind": "turn_wanted", "ticket": 1})
    guest.hear("turn_granted")
    server.say({"kind": "ended", "request": 1, "session": "s1"})
    server.hear("done", request=1)
    guest.hear("hung_up")
    daemon.until("s1", lambda row: row is None or row["state"] == "leaving")
    guest.process.kill()
    daemon.until("s1", lambda row: row is None)
    announce(server, "s2")
    for request in (2, 3):  # A second time it is ended already.
        server.say({"kind": "ended", "request": request, "session": "s2"})
        server.hear("done", request=request)


def test_an_interrupt_goes_on_to_the_guest(daemon: Daemon) -> None:
    server, guest = server_of(daemon), daemon.guest("s1")
    server.say({"kind": "interrupt", "session": "s1"})
    guest.hear("interrupt")
    server.say({"kind": "interrupt"})
    assert server.hear("failed")["code"] == "bad_message"


def test_an_interrupt_that_the_cells_go_on_after_is_shown_until_they_end(daemon: Daemon) -> None:
    server, guest = server_of(daemon), daemon.guest("s1")
    guest.say({"kind": "cell_started", "cell": 1})
    daemon.until("s1", lambda row: row is not None and row["cell_id"] is None)
    server.say({"kind": "interrupt", "session": "s1"})
    guest.hear("interrupt")
    daemon.until("s1", lambda row: row is not None and (row["reason"] or {}).get("code") == "interrupted")
    guest.say({"kind": "cell_finished", "cell": 1})
    daemon.until("s1", lambda row: row is not None and row["reason"] is None)


def test_bad_announcements_are_refused(daemon: Daemon) -> None:
    server = server_of(daemon)
    for wrong, code in (
        ({"session": ""}, "bad_message"),
        ({"token": "short"}, "bad_message"),
        ({"priority": "urgent"}, "bad_value"),
    ):
        said = {"kind": "announce", "request": 1, "session": "s", "token": "long-enough", "incarnation": 1, **wrong}
        server.say(said)
        assert server.hear("failed", request=1)["code"] == code
    assert daemon.state()["sessions"] == []


def test_verbs_do_what_they_say(daemon: Daemon) -> None:
    guest, other = daemon.guest("s1"), daemon.guest("s2")
    guest.say({"kind": "turn_wanted", "ticket": 1})
    epoch = guest.hear("turn_granted")["epoch"]
    with daemon.client() as client:
        assert client.act("priority", "s1", "high")["session"]["priority"] == "high"
        assert client.act("pinned", "s1", "true")["session"]["pinned"] is True
        assert client.act("pinned", "s1", "false")["session"]["pinned"] is False
        other.say({"kind": "turn_wanted", "ticket": 1})
        client.act("yield", "s1")
    guest.hear("turn_revoked", epoch=epoch)
    with daemon.client(admin=True) as admin:
        assert admin.act("policy", "host", "fifo")["device"]["policy"] == "fifo"


@pytest.mark.parametrize(
    ("verb", "target", "value", "error", "why"),
    [
        ("priority", "s1", "urgent", BadValue, "high, normal, low are known"),
        ("priority", "s1", None, BadValue, "high, normal, low are known"),
        ("priority", "s9", "high", UnknownSession, "'s9'"),
        ("pinned", "s1", "perhaps", BadValue, "true or false is needed"),
        ("yield", "s1", None, NotPossible, "cannot let session s1 pass its turn on"),
        ("evict", "s1", None, NotPossible, "evicting frees nothing on the host device"),
        ("restore", "s1", None, NotPossible, "stays where it is"),
        ("explode", "s1", None, BadValue, "the verbs are priority"),
        ("policy", "host", "fifo", NotAllowed, "admin socket"),
        ("retire", "backend", None, NotAllowed, "admin socket"),
    ],
)
def test_refused_verbs_say_why(
    daemon: Daemon, verb: str, target: str, value: str | None, error: type[SalusError], why: str
) -> None:
    daemon.guest("s1")
    with daemon.client() as client, pytest.raises(error, match=why) as told:
        client.act(verb, target, value)
    assert told.value.message.startswith("cannot")


def test_admin_verbs_check_their_values(daemon: Daemon) -> None:
    daemon.guest("s1")
    with daemon.client(admin=True) as admin:
        with pytest.raises(UnknownDevice, match="there is host"):
            admin.act("policy", "gpu7", "fifo")
        with pytest.raises(BadValue, match="fair, fifo, srtf, pack, priority are known"):
            admin.act("policy", "host", "lottery")
        with pytest.raises(NotPossible, match="1 sessions are there"):
            admin.act("retire", "backend")


def test_a_backend_without_sessions_makes_way(daemon: Daemon) -> None:
    with daemon.client(admin=True) as admin:
        admin.act("retire", "backend")
    assert daemon.process.wait(60) == 0


def test_a_subscriber_gets_the_whole_state_and_then_changed_rows(daemon: Daemon) -> None:
    daemon.guest("s1", name="a.ipynb")
    server = server_of(daemon)
    server.say({"kind": "subscribe", "request": 1})
    server.hear("done", request=1)
    first = server.hear("state_changed", previous_revision=0)
    assert [row["id"] for row in first["sessions"]] == ["s1"]
    assert [row["id"] for row in first["devices"]] == ["host"]
    assert first["backend"]["pid"] == daemon.process.pid
    second = daemon.guest("s2")
    revision = first["revision"]
    seen: dict[str, Any] = {}
    while "s2" not in seen:
        change = server.hear("state_changed", previous_revision=revision)
        revision = change["revision"]
        seen.update({row["id"]: row for row in change["sessions"]})
    second.close()
    while seen.get("s2", {}).get("state") != "leaving":
        change = server.hear("state_changed", previous_revision=revision)
        revision = change["revision"]
        seen.update({row["id"]: row for row in change["sessions"]})


def test_a_removed_session_is_told_as_removed(daemon: Daemon) -> None:
    server, guest = server_of(daemon), daemon.guest_process("s1")
    server.say({"kind": "subscribe", "request": 1})
    server.hear("state_changed")
    guest.process.kill()
    removed: list[str] = []
    while not removed:
        removed = server.hear("state_changed").get("removed_sessions") or []
    assert removed == ["s1"]


def test_alternation_alone_makes_no_revision(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon(config={"quantum_s": 0.02})
    guests = [daemon.guest("s1"), daemon.guest("s2")]
    guests[0].say({"kind": "turn_wanted", "ticket": 1})
    epoch, at = guests[0].hear("turn_granted")["epoch"], 0
    guests[1].say({"kind": "turn_wanted", "ticket": 1})
    first = None
    for turn in range(2, 30):
        guests[at].hear("turn_revoked", epoch=epoch)
        guests[at].say({"kind": "turn_released", "epoch": epoch, "wants_more": True, "ticket": turn})
        at = 1 - at
        epoch = guests[at].hear("turn_granted")["epoch"]
        state = daemon.state()
        if turn >= 5 and [row["state"] for row in state["sessions"]] == ["running", "running"]:
            assert [row["sharing_with"] for row in state["sessions"]] == [["s2"], ["s1"]]
            assert all(row["reason"] is None and row["position"] is None for row in state["sessions"])
            first = first or (turn, state["revision"])
    assert first is not None
    # Memory may have been measured anew now and then.
    assert state["revision"] - first[1] <= (turn - first[0]) / 2


def test_the_state_has_the_shape_of_its_example(daemon: Daemon) -> None:
    guest = daemon.guest("s1")
    guest.say({"kind": "turn_wanted", "ticket": 1})
    guest.hear("turn_granted")
    state = daemon.state()
    assert set(state) == set(STATE)
    for name in ("devices", "lanes", "sessions"):
        assert [set(row) for row in state[name]] == [set(STATE[name][0])]
    assert set(state["backend"]) == set(STATE["backend"])
    with daemon.client() as client:
        history = client.ask("history", since=0)
    example = json.loads((EXAMPLES / "history.json").read_text())
    assert set(history) == set(example)
    assert set(history["entries"][0]) == set(example["entries"][0])


def test_history_has_what_sessions_did(daemon: Daemon) -> None:
    guest = daemon.guest("s1")
    guest.say({"kind": "turn_wanted", "ticket": 1})
    epoch = guest.hear("turn_granted")["epoch"]
    daemon.until("s1", lambda row: row is not None and row["state"] == "running")
    guest.say({"kind": "turn_released", "epoch": epoch})
    daemon.until("s1", lambda row: row is not None and row["state"] == "holding")
    with daemon.client() as client:
        history = client.ask("history", since=0)
        assert history["complete"] is True
        states = [entry["state"] for entry in history["entries"] if entry["session"] == "s1"]
        assert states[-2:] == ["running", "holding"]
        later = client.ask("history", since=history["revision"])
        assert later["entries"] == []


def test_the_journal_tells_in_words(daemon: Daemon) -> None:
    guest = daemon.guest("s1", name="a.ipynb")
    guest.say({"kind": "turn_wanted", "ticket": 1})
    guest.hear("turn_granted")
    with daemon.client() as client:
        client.act("priority", "s1", "low")
        entries = client.ask("journal")["entries"]
    texts = [entry["text"] for entry in entries]
    assert any(text.startswith("The backend started") for text in texts)
    assert "a.ipynb got a turn in lane host/1" in texts
    assert texts[-1] == "a.ipynb has priority low now"
    assert entries[-1]["session"] == "s1"


def test_metrics_count(daemon: Daemon, wait_until: Callable[..., None]) -> None:
    guest = daemon.guest("s1")
    guest.say({"kind": "turn_wanted", "ticket": 1})
    guest.hear("turn_granted")
    with daemon.client() as client:
        metrics = client.ask("metrics")
    assert metrics["turns_total"] == 1
    assert metrics["sessions"] == 1
    assert metrics["events"]["SessionOpened"] == 1
    assert metrics["decision_p99_s"] > 0
