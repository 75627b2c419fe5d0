"""Who a peer is comes from the door: a hub user's own socket, whatever uid comes in by it; the user door's uid; the admin's."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_salus.errors import BadValue, NotAllowed, SalusError
from jupyter_salus.protocol.client import Client
from jupyter_salus.protocol.doors import directory_of, user_of
from jupyter_salus.protocol.messages import Announce, Describe, Launched
from tests.hub.conftest import ADA, GRACE, Shared, as_user

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can come as another user")


def test_whoever_comes_through_a_hub_users_door_is_that_user(shared: Shared) -> None:
    """Two containers with the same uid, and a third whose user is root, aren't one another."""
    anna, bert = shared.door_of("anna"), shared.door_of("bert")
    key = shared.contained(anna, ADA, session="a1", name="a.ipynb").hear("welcome")["key"]
    shared.contained(bert, ADA, session="b1").hear("welcome")
    assert shared.contained(bert, 0, session="a1", key=key).hear("failed")["code"] == "not_allowed"
    assert shared.at(bert, {"role": "guest", "session": "a1", "key": key}).hear("failed")["code"] == "not_allowed"
    rows = {}
    for who, path in (("anna", anna), ("bert", bert)):
        with Client(path) as client:  # as root, which has no rights by that
            rows[who] = {row["id"]: row for row in client.ask("state")["sessions"]}
            other = "b1" if who == "anna" else "a1"
            with pytest.raises(NotAllowed):
                client.act("priority", other, "low")
    assert (rows["anna"]["a1"]["own"], rows["anna"]["a1"]["name"], rows["anna"]["a1"]["user"]) == (
        True,
        "a.ipynb",
        "anna",
    )
    assert (rows["bert"]["a1"]["own"], rows["bert"]["a1"]["name"], rows["bert"]["a1"]["user"]) == (False, None, None)
    with shared.client_of(ADA) as local:  # the uid that is in both containers owns neither here
        assert [row["own"] for row in local.ask("state")["sessions"]] == [False, False]


def test_a_hub_user_and_a_unix_user_of_one_name_are_two(shared: Shared) -> None:
    name = str(ADA)
    shared.at(shared.door_of(name), {"role": "guest", "session": "hub"}).hear("welcome")
    with shared.client_of(ADA) as local:
        assert local.ask("state")["sessions"][0]["own"] is False
        with pytest.raises(NotAllowed):
            local.act("priority", "hub", "low")


def test_other_local_users_reach_no_hub_users_door(shared: Shared) -> None:
    door = Path(shared.door_of("anna"))
    assert stat.S_IMODE(door.stat().st_mode) == 0o666  # any uid of the containers that it is mounted into
    assert stat.S_IMODE(door.parent.parent.stat().st_mode) == 0o700
    with as_user(GRACE), pytest.raises(PermissionError):
        os.stat(door)


@pytest.mark.parametrize("name", ["../../x", "a/b", ".", "ö@example.org", "_2e"])
def test_no_name_leaves_the_users_directory(shared: Shared, name: str) -> None:
    door = Path(shared.door_of(name))
    assert door.parent.parent == shared.directory / "users"
    assert ".." not in door.parts
    shared.at(str(door), {"role": "client"}).hear("welcome")


def test_names_that_differ_have_doors_that_differ(shared: Shared) -> None:
    names = ["a.b", "a_2eb", "a_b", "A.b", "a-b"]
    assert len({shared.door_of(one) for one in names}) == len(names)


def test_a_directory_that_a_mount_made_gets_its_socket(shared: Shared, wait_until) -> None:
    """A cluster's spawner can't reach each node's backend: it mounts, which makes the directory, as root."""
    shared.door_of("anna")
    made = Path(directory_of(shared.path, "bert@example.org"))
    made.mkdir(mode=0o755)
    (made.parent / "no_user").mkdir()
    wait_until(lambda: (made / "backend.sock").exists(), "the socket of the user")
    shared.at(str(made / "backend.sock"), {"role": "guest", "session": "k1"}).hear("welcome")
    with shared.client(admin=True) as admin:
        assert admin.ask("state")["sessions"][0]["user"] == "bert@example.org"
    assert list((made.parent / "no_user").iterdir()) == []


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
def test_a_directorys_name_says_its_user(name: str) -> None:
    directory = directory_of("/run/x/backend.sock", name)
    assert user_of(os.path.basename(directory)) == name
    assert os.path.dirname(directory) == "/run/x/users"


def test_only_the_admin_door_makes_users_known_and_forgets_them(shared: Shared) -> None:
    door = shared.door_of("anna")
    talker = shared.at(door, {"role": "client"})
    talker.hear("welcome")
    with shared.client_of(0) as root, Client(door) as anna:
        for client in (root, anna):
            for verb in ("user", "forget"):
                with pytest.raises(NotAllowed):
                    client.act(verb, "anna", "{}")
    with shared.client(admin=True) as admin:
        assert admin.act("forget", "anna") == {"known": True}
        assert admin.act("forget", "anna") == {"known": False}
    assert talker.hang_up()
    assert not Path(door).exists()
    assert not Path(door).parent.exists()


def test_what_is_said_of_a_user_is_checked(shared: Shared) -> None:
    for said in ("[]", "{", '{"groups": "course"}', '{"limits": {"weight": 0}}', '{"uid": 0}', '{"socket": 1}'):
        with pytest.raises(BadValue):
            shared.user("eve", said)
    with shared.client(admin=True) as admin:
        assert "eve" not in [row["name"] for row in admin.ask("users")["users"]]


def test_refusals_are_in_the_log_with_who_asked(shared: Shared) -> None:
    with shared.client_of(GRACE) as grace, pytest.raises(NotAllowed):
        grace.act("policy", "host", "fifo")
    assert f"uid {GRACE}" in next(
        line for line in shared.log().splitlines() if "Refused" in line and str(GRACE) in line
    )


def test_no_words_of_a_peers_forge_a_line_or_turn_an_admins_terminal(shared: Shared) -> None:
    door, escape = shared.door_of("anna"), "\x1b[2J\n2026-01-01 00:00:00 WARNING Refused root\u202e"
    named = {"name": f"a{escape}", "path": f"p{escape}", "kernel_id": f"k{escape}"}
    shared.at(door, {"role": "guest", "session": "t1", **named}).hear("welcome")
    shared.at(door, {"role": "guest", "session": f"t2{escape}"}).hear("failed", code="bad_message")
    shared.at(door, {"role": f"x{escape}"}).hear("failed")
    shared.at(door, {"role": "client", "version": escape, "protocol": [7, 9]}).hear("failed")
    with Client(door, role="server") as server:
        for fields in ({"session": f"t3{escape}"}, {"token": escape * 9}):
            with pytest.raises(SalusError):
                server.request(Announce, **{"session": "t4", "token": "short", "incarnation": 1, **fields})
        server.request(Announce, session="t5", token="t" * 10, incarnation=1, name=escape)
        server.request(Launched, session="t5", unmanaged=f"because{escape}")
        server.request(Describe, session="t5", name=f"b{escape}", path=f"q{escape}")
    with shared.client(admin=True) as admin:
        told = json.dumps([admin.ask("state"), admin.ask("journal"), admin.ask("users")], ensure_ascii=False)
    assert "a\ufffd[2J\ufffd2026" in told
    for unseen in ("\\u001b", "\\n", "\u202e"):
        assert unseen not in told
    log = shared.log()
    assert "\x1b" not in log
    assert not [line for line in log.splitlines() if line.startswith("2026-01-01")]


def test_a_server_says_the_pid_of_no_process_but_its_own_kernels(shared: Shared) -> None:
    """Else its session would have somebody else's process, whose memory and end are looked at, and which may be stopped."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with Client(shared.door_of("anna"), role="server") as server:
        for number, pid in enumerate((os.getppid(), shared.process.pid, child.pid)):
            server.request(Announce, session=f"l{number}", token="t" * 10, incarnation=1)
            server.request(Launched, session=f"l{number}", pid=pid)
        child.communicate()
        # The end of its own kernel is seen; those of the others it has nothing to do with.
        shared.until("l2", lambda row: row is None)
        assert {row["id"] for row in server.ask("state")["sessions"]} == {"l0", "l1"}


def test_the_journal_in_words_names_ones_own_notebooks_alone(shared: Shared) -> None:
    with as_user(ADA):
        shared.at(shared.path, {"role": "guest", "session": "j1", "name": "secret.ipynb"}).hear("welcome")
    with shared.client_of(GRACE) as grace, shared.client_of(ADA) as ada, shared.client(admin=True) as admin:
        texts = ["\n".join(one["text"] for one in who.ask("journal")["entries"]) for who in (grace, ada, admin)]
    assert ["secret.ipynb" in text for text in texts] == [False, True, True]


@pytest.mark.parametrize("kind", ["link", "file", "directory"])
def test_what_a_container_puts_in_the_place_of_its_socket_is_not_touched(shared: Shared, kind: str, wait_until) -> None:
    """Its directory should be mounted so that it can't; where it can, it gets no socket, and harms nobody."""
    door, secret = Path(shared.door_of("anna")), shared.directory / "secret"
    secret.touch(mode=0o600)
    shared.kill()
    door.unlink()
    if kind == "link":
        door.symlink_to(secret)
    elif kind == "file":
        door.write_text("anna's")
    else:
        door.mkdir()
    shared.start()
    wait_until(lambda: "Hub user anna has no socket: cannot listen at" in shared.log(), "the refusal in the log")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert kind != "file" or door.read_text() == "anna's"
    shared.at(shared.door_of("bert"), {"role": "client"}).hear("welcome")
    with shared.client(admin=True) as admin:
        with pytest.raises(SalusError, match="cannot listen at"):
            admin.act("user", "anna", '{"socket": true}')
        assert admin.act("forget", "anna") == {"known": True}
    assert "Hub user anna is forgotten, and something of theirs stays" in shared.log()
