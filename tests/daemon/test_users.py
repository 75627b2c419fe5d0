"""Several users at one backend: each governs its own sessions, sees of others' what it must, and rules nobody."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jupyter_salus.errors import NotAllowed
from jupyter_salus.protocol.client import Client
from tests.daemon.speaking import Daemon, Talker

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can come as another user")
ADA, GRACE = 23456, 23457


@contextmanager
def as_user(uid: int) -> Iterator[None]:
    """What connects inside does so as this user."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared(daemon: Daemon) -> Daemon:
    """A backend whose user socket all users reach, as a system's is."""
    os.chmod(daemon.directory.parent, 0o755)
    os.chmod(daemon.directory, 0o755)
    os.chmod(daemon.path, 0o666)
    return daemon


@pytest.fixture
def guest_of(shared: Daemon) -> Callable[..., Talker]:
    def open_session(uid: int, session: str, **hello: Any) -> Talker:
        with as_user(uid):
            return shared.talker({"role": "guest", "session": session, **hello})

    return open_session


def client_of(shared: Daemon, uid: int) -> Client:
    with as_user(uid):
        return Client(shared.path, role="server", timeout=60)


def test_others_sessions_are_seen_without_what_is_theirs_alone(shared: Daemon, guest_of: Callable[..., Talker]) -> None:
    guest_of(ADA, "a1", name="a.ipynb", path="secret/a.ipynb", kernel_id="k").hear("welcome")
    with client_of(shared, ADA) as ada, client_of(shared, GRACE) as grace, client_of(shared, 0) as root:
        mine, theirs, roots = (one.ask("state")["sessions"][0] for one in (ada, grace, root))
    assert (mine["own"], mine["path"], mine["kernel_id"], mine["user"]) == (True, "secret/a.ipynb", "k", str(ADA))
    for seen in (theirs, roots):  # root has no rights by itself on a user socket
        assert (seen["own"], seen["path"], seen["kernel_id"], seen["cell_id"], seen["name"]) == (False, *[None] * 4)
        assert seen["user"] == str(ADA)
    with shared.client(admin=True) as admin:
        assert admin.ask("state")["sessions"][0]["path"] == "secret/a.ipynb"


@pytest.mark.parametrize("uid", [GRACE, 0])
def test_others_sessions_are_not_governed_from_a_user_socket(
    shared: Daemon, guest_of: Callable[..., Talker], uid: int
) -> None:
    guest_of(ADA, "a1").hear("welcome")
    with client_of(shared, uid) as other:
        for verb, value in (("priority", "low"), ("pinned", "true"), ("yield", None)):
            with pytest.raises(NotAllowed, match="the admin socket may"):
                other.act(verb, "a1", value)
    with shared.client(admin=True) as admin:
        assert admin.act("priority", "a1", "low")["session"]["priority"] == "low"


def test_nobody_opens_announces_or_ends_anothers_session(shared: Daemon, guest_of: Callable[..., Talker]) -> None:
    first = guest_of(ADA, "a1")
    key = first.hear("welcome")["key"]
    assert guest_of(GRACE, "a1", key=key).hear("failed")["code"] == "not_allowed"
    with as_user(GRACE):
        server = shared.talker({"role": "server"})
    server.hear("welcome")
    for said in (
        {"kind": "announce", "token": "t" * 10, "incarnation": 2},
        {"kind": "launched", "pid": 1},
        {"kind": "describe", "name": "x", "path": "x"},
        {"kind": "ended"},
    ):
        server.say({"request": 1, "session": "a1", **said})
        assert server.hear("failed", request=1)["code"] == "not_allowed"
    server.say({"kind": "interrupt", "session": "a1"})
    assert server.hear("failed")["code"] == "not_allowed"
    first.say({"kind": "turn_wanted", "ticket": 1})
    first.hear("turn_granted")


def test_only_its_user_reaches_the_admin_socket(shared: Daemon) -> None:
    with as_user(ADA), pytest.raises(PermissionError):
        Talker(shared.admin_path)
