"""Shares and limits: from the file and from the hub, held with a clear word, kept over restarts."""

from __future__ import annotations

import os

import pytest

from jupyter_salus.errors import OverLimit
from jupyter_salus.protocol.client import Client
from jupyter_salus.protocol.messages import Announce, Ended
from tests.hub.conftest import ADA, LIMITS, Shared
from tests.native.world import ChildError, World

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can come as another user")
MIB = 1 << 20
#: CUDA_ERROR_OUT_OF_MEMORY.
OUT_OF_MEMORY = 2


def limits_of(shared: Shared, name: str) -> dict:
    with shared.client(admin=True) as admin:
        return next(row["limits"] for row in admin.ask("users")["users"] if row["name"] == name)


def test_groups_give_the_most_and_a_users_own_table_the_last_word(shared: Shared) -> None:
    shared.user("ada", '{"groups": ["course", "none"]}')
    assert limits_of(shared, "ada") == {
        "weight": 0.5,
        "max_priority": "normal",
        "max_sessions": 2,
        "persistent_bytes": 2 << 30,
        "host_bytes": None,
    }
    shared.user("ada", '{"groups": ["course", "staff"]}')
    both = limits_of(shared, "ada")
    assert (both["weight"], both["max_priority"], both["persistent_bytes"], both["max_sessions"]) == (
        2,
        "high",
        None,
        2,
    )
    shared.user("bob", '{"groups": [], "limits": {"max_sessions": 7, "host_bytes": "1GiB"}}')
    assert (limits_of(shared, "bob")["max_sessions"], limits_of(shared, "bob")["host_bytes"]) == (7, 1 << 30)


def test_a_user_sees_only_their_own_limits(shared: Shared) -> None:
    shared.user("ada", '{"groups": ["course"]}')
    with Client(shared.door_of("anna")) as anna:
        assert [row["name"] for row in anna.ask("users")["users"]] == ["anna"]


def test_sessions_over_the_limit_are_refused_with_the_limit_and_shown_with_the_reason(shared: Shared) -> None:
    door = shared.door_of("anna")
    guests = [shared.at(door, {"role": "guest", "session": f"s{number}"}) for number in range(3)]
    for guest in guests:
        guest.hear("welcome")
    with Client(door, role="server") as server:
        told = server.request(Announce, session="s3", token="t" * 10, incarnation=1, name="4.ipynb")
        assert told["unmanaged"].startswith("cannot open another session of anna: there are 3, the limit is 3")
        refused = shared.at(door, {"role": "guest", "session": "s3", "token": "t" * 10})
        assert refused.hear("failed")["code"] == "over_limit"
        # The same kernel, restarted, isn't another one.
        assert server.request(Announce, session="s2", token="u" * 10, incarnation=2) == {}
        # Who ends one gets the seat, and the kernel that waited for it takes part without being started again.
        server.request(Ended, session="s0")
        shared.at(door, {"role": "guest", "session": "s3", "token": "t" * 10}).hear("welcome")
        row = next(one for one in server.ask("state")["sessions"] if one["id"] == "s3")
        assert row["managed"] is True


def test_named_servers_and_containers_share_their_users_seats(shared: Shared) -> None:
    door = shared.door_of("anna")
    with Client(door, role="server") as one, Client(door, role="server") as two:
        for number in range(3):
            server = (one, two)[number % 2]
            assert server.request(Announce, session=f"n{number}", token="t" * 10, incarnation=1) == {}
        assert "unmanaged" in two.request(Announce, session="n3", token="t" * 10, incarnation=1)
        for number in range(4):
            one.request(Ended, session=f"n{number}")


def test_a_kernel_that_restarts_finds_its_seat_and_one_that_was_shut_down_leaves_it(shared: Shared) -> None:
    """Whichever comes first: that the process is gone, or that its server says so."""
    shared.user("anna", '{"limits": {"max_sessions": 1}}')
    door = shared.door_of("anna")
    with Client(door, role="server") as server:

        def announced(session: str, incarnation: int) -> bool:
            return server.request(Announce, session=session, token="t" * 10, incarnation=incarnation) == {}

        assert announced("k1", 1)
        kernel = shared.contained(door, ADA, session="k1", token="t" * 10)
        kernel.hear("welcome")
        kernel.close()
        shared.until("k1", lambda row: row is None)
        assert not announced("k2", 1)
        assert announced("k1", 2)
        server.request(Ended, session="k2")
        kernel = shared.contained(door, ADA, session="k1", token="t" * 10)
        kernel.hear("welcome")
        kernel.close()
        shared.until("k1", lambda row: row is None)
        server.request(Ended, session="k1")
        assert announced("k2", 1)
        server.request(Ended, session="k2")


def test_a_priority_above_the_highest_is_refused_and_lowered_at_opening(shared: Shared) -> None:
    shared.user("anna", '{"groups": ["course"]}')
    door = shared.door_of("anna")
    shared.at(door, {"role": "guest", "session": "p1", "priority": "high"}).hear("welcome")
    with Client(door) as anna:
        assert anna.ask("state")["sessions"][0]["priority"] == "normal"
        with pytest.raises(OverLimit, match="the highest for anna is normal"):
            anna.act("priority", "p1", "high")
        shared.user("anna", '{"groups": ["staff"]}')
        assert anna.act("priority", "p1", "high")["session"]["priority"] == "high"
        # A limit that sinks holds for what is there, too.
        shared.user("anna", '{"groups": ["course"]}')
        assert anna.ask("state")["sessions"][0]["priority"] == "normal"


def test_the_file_is_read_again_when_it_changes_and_a_broken_one_changes_nothing(shared: Shared, wait_until) -> None:
    shared.user("bob", '{"groups": [], "limits": {}}')
    shared.limits.write_text("[users.bob]\nweight = 4\n")
    wait_until(lambda: limits_of(shared, "bob")["weight"] == 4, "the limits to be read")
    shared.limits.write_text("[users.bob]\nweight = -1\n")
    wait_until(lambda: "The limits stay as they were" in shared.log(), "the complaint")
    assert limits_of(shared, "bob")["weight"] == 4
    assert f"users.bob in {shared.limits}" in shared.log()


def test_a_restart_of_the_backend_keeps_seats_doors_and_groups(shared: Shared) -> None:
    shared.user("anna", '{"groups": ["course"]}')
    door = shared.door_of("anna")
    guests = [shared.at(door, {"role": "guest", "session": f"r{number}"}) for number in range(3)]
    keys = [guest.hear("welcome")["key"] for guest in guests]
    shared.kill()
    shared.limits.write_text(LIMITS.replace("max_sessions = 3", "max_sessions = 1"))
    shared.start()
    for number, key in enumerate(keys):
        shared.at(door, {"role": "guest", "session": f"r{number}", "key": key}).hear("welcome")
    assert shared.at(door, {"role": "guest", "session": "r9"}).hear("failed")["code"] == "over_limit"
    assert limits_of(shared, "anna")["weight"] == 0.5


def test_unix_groups_count_for_local_users(shared: Shared, wait_until) -> None:
    shared.at(shared.path, {"role": "guest", "session": "u1"}).hear("welcome")
    shared.limits.write_text("[groups.root]\nmax_sessions = 1\n")
    wait_until(lambda: limits_of(shared, "root")["max_sessions"] == 1, "the limits to be read")
    assert shared.at(shared.path, {"role": "guest", "session": "u2"}).hear("failed")["code"] == "over_limit"


def test_a_gpu_is_as_large_as_its_users_limit_and_no_larger(shared_gpu: Shared, world: World, wait_until) -> None:
    """Idle sessions of the same user make way; what one session alone could never get is its framework's own error."""
    shared_gpu.user("anna", f'{{"limits": {{"persistent_bytes": {64 * MIB}}}}}')
    ours = {"JUPYTER_SALUS_SOCKET": shared_gpu.door_of("anna")}
    first, second = (world.child(**ours, JUPYTER_SALUS_SESSION=session) for session in ("l1", "l2"))
    theirs = world.child(JUPYTER_SALUS_SOCKET=shared_gpu.door_of("bert"), JUPYTER_SALUS_SESSION="l3")
    for child in (first, theirs):
        child.do("start()")
        child.do(f"at = alloc({40 * MIB})")
    assert (first.do("memory()")[1], theirs.do("memory()")[1]) == (64 * MIB, 256 * MIB)
    second.do("start()")
    second.do(f"alloc({40 * MIB})")
    with shared_gpu.client(admin=True) as admin:

        def out() -> list[str]:
            return [row["id"] for row in admin.ask("state")["sessions"] if row["residency"] == "evicted"]

        # What a process has between two boundaries is no user's lasting memory: the limit holds from the next one on.
        wait_until(lambda: out() in (["l1"], ["l2"]), "an idle session of the user to make way")
    with pytest.raises(ChildError) as refused:
        second.do(f"alloc({40 * MIB})")
    assert refused.value.code == OUT_OF_MEMORY
    assert theirs.do(f"alloc({40 * MIB})")
