"""Users share first, then a user's sessions; what a user may have is kept; a restart keeps its seat."""

from __future__ import annotations

import pytest

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.decisions import EvictSession, RefuseGrowth
from jupyter_salus.backend.core.events import Profile, UserLimits
from jupyter_salus.errors import BadValue, OverLimit

from .world import MIB, Guest, World

#: Uses the whole device, so that nobody runs beside it.
WHOLE = Profile(10 * MIB, 10 * MIB, device_share=1.0, iteration_s=0.05)


def _open(world: World, name: str, user: str, **more) -> Guest:
    return world.open(name, **{"iteration_s": 0.05, "profile": WHOLE, "user": user, **more})


def _used_s(world: World, user: str) -> float:
    return world.user_row(user).used_s


def _contend(world: World, seconds: float = 120.0) -> None:
    world.checking = False
    world.run(seconds)
    world.scheduler.check_invariants()


def test_ten_notebooks_get_no_more_than_one(world: World):
    for number in range(10):
        world.want(_open(world, f"many{number}", "anna"))
    world.want(_open(world, "one", "bert"))
    _contend(world)
    assert _used_s(world, "bert") / 120 == pytest.approx(0.5, rel=0.1)
    assert _used_s(world, "anna") / 120 == pytest.approx(0.5, rel=0.1)
    used = [world.row(f"many{number}").used_s for number in range(10)]
    assert max(used) - min(used) < 1.0, "and the ten share theirs alike"


def test_who_comes_later_gets_half_from_then_on(world: World):
    for number in range(10):
        world.want(_open(world, f"many{number}", "anna"))
    _contend(world, 60)
    before = _used_s(world, "anna")
    world.want(_open(world, "one", "bert"))
    _contend(world, 60)
    assert _used_s(world, "bert") / 60 == pytest.approx(0.5, rel=0.1)
    assert (_used_s(world, "anna") - before) / 60 == pytest.approx(0.5, rel=0.1)


def test_users_share_by_their_weight(world: World):
    world.tell(UserLimits("anna", weight=3.0))
    for user, count in (("anna", 2), ("bert", 5)):
        for number in range(count):
            world.want(_open(world, f"{user}{number}", user))
    _contend(world)
    assert _used_s(world, "anna") / 120 == pytest.approx(0.75, rel=0.1)
    world.tell(UserLimits("anna", weight=1.0))
    before = _used_s(world, "anna")
    _contend(world)
    assert (_used_s(world, "anna") - before) / 120 == pytest.approx(0.5, rel=0.1)


def test_priorities_count_among_a_users_own_sessions_alone(world: World):
    for name, priority in (("high", "high"), ("low", "low")):
        world.want(_open(world, name, "anna", priority=priority))
    world.want(_open(world, "other", "bert", priority="low"))
    _contend(world)
    assert _used_s(world, "bert") / 120 == pytest.approx(0.5, rel=0.1)
    assert world.row("high").used_s / world.row("low").used_s == pytest.approx(4.0, rel=0.15)


def test_new_notebooks_again_and_again_gain_nothing(world: World):
    world.want(_open(world, "one", "bert"))
    world.checking = False
    used = 0.0
    for number in range(240):
        guest = _open(world, f"fresh{number}", "anna")
        world.want(guest)
        other = _open(world, f"other{number}", "anna")
        world.want(other)
        world.run(0.5)
        used += _used_s(world, "anna")
        world.crash(guest, freed_after_s=0.0)
        world.crash(other, freed_after_s=0.0)
    assert used / 120 == pytest.approx(0.5, rel=0.1)


def test_short_cells_of_one_users_many_notebooks_share_one_credit(world: World):
    """Forty times two seconds a minute would leave nobody else a turn."""
    for number in range(40):
        world.want(_open(world, f"many{number}", "anna", persistent=1, ephemeral=1))
    world.want(_open(world, "one", "bert"))
    _contend(world, 30)
    assert _used_s(world, "bert") / 30 == pytest.approx(0.5, rel=0.1)


def test_who_goes_idle_leaves_what_is_theirs_to_the_others(world: World):
    anna = [_open(world, f"anna{number}", "anna") for number in range(3)]
    for guest in anna:
        world.want(guest)
    world.want(_open(world, "bert", "bert"))
    _contend(world, 30)
    for guest in anna[1:]:
        guest.iterations_left = 1
    world.run(5)
    before = world.row("anna0").used_s
    _contend(world, 60)
    assert (world.row("anna0").used_s - before) / 60 == pytest.approx(0.5, rel=0.1)
    anna[0].iterations_left = 1
    world.run(5)
    before = _used_s(world, "bert")
    world.run(10)
    assert _used_s(world, "bert") - before == pytest.approx(10, rel=0.01)


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_one_session_more_than_allowed_is_refused(world: World):
    world.tell(UserLimits("anna", max_sessions=2))
    first = world.open("a", user="anna")
    world.open("b", user="anna")
    with pytest.raises(OverLimit, match="cannot open session 'c': anna has 2 sessions, the limit is 2") as caught:
        world.open("c", user="anna")
    assert caught.value.detail == {"limit": "max_sessions"}
    del world.guests["c"]
    world.open("d", user="bert")
    world.crash(first)
    world.open("c", user="anna")
    # One that comes back to a new backend with its bytes is there, whatever the limit says.
    back = events.SessionOpened("e", "anna", "gpu", holding=True, persistent_bytes=5 * MIB)
    world.scheduler.handle(back, world.now)
    assert world.user_row("anna").sessions == 3


def test_a_restart_keeps_its_seat(world: World):
    world.tell(UserLimits("anna", max_sessions=1))
    guest = world.open("a", user="anna")
    world.crash(guest, restarts=True)
    with pytest.raises(OverLimit, match="anna has 1 sessions, 1 of them kept for kernels that restart, the limit is 1"):
        world.open("b", user="anna")
    del world.guests["b"]
    world.open("a", user="anna")
    world.crash(world.guests["a"], restarts=True)
    world.tell(events.SeatLeft("a"))
    world.open("b", user="anna")


def test_a_seat_is_kept_for_a_while_only(world: World):
    world.tell(UserLimits("anna", max_sessions=1))
    world.crash(world.open("a", user="anna"), restarts=True)
    world.run(30)
    world.crash(world.open("a", user="anna"), restarts=True)
    world.run(world.config.seat_s - 1)
    with pytest.raises(OverLimit):
        world.open("b", user="anna")
    del world.guests["b"]
    world.run(2)
    world.open("b", user="anna")


def test_a_restart_brings_no_new_credit(world: World):
    world.want(_open(world, "a", "anna"))
    world.want(_open(world, "b", "bert"))
    _contend(world, 8)
    virtual = world.scheduler._state.sessions["a"].virtual_s
    world.crash(world.guests["a"], restarts=True)
    world.run(0.5)
    world.want(_open(world, "a", "anna"))
    session = world.scheduler._state.sessions["a"]
    assert session.virtual_s >= virtual
    assert not world.scheduler._state.interactive(session, world.now)


def test_priorities_above_the_highest_allowed_are_lowered_or_refused(world: World):
    world.open("old", user="anna", priority="high")
    world.tell(UserLimits("anna", max_priority="normal"))
    assert world.row("old").priority == "normal"
    world.open("new", user="anna", priority="high")
    assert world.row("new").priority == "normal"
    with pytest.raises(OverLimit, match="cannot give session new priority high: the highest for anna is normal"):
        world.tell(events.PriorityChanged("new", "high"))
    world.tell(events.PriorityChanged("new", "low"))
    assert world.row("new").priority == "low"


@pytest.mark.parametrize(
    "limits",
    [
        {"weight": 0.0},
        {"weight": float("nan")},
        {"weight": float("inf")},
        {"max_priority": "urgent"},
        {"max_sessions": -1},
        {"persistent_bytes": -1},
        {"host_bytes": -5},
    ],
)
def test_limits_that_cannot_be_change_nothing(world: World, limits: dict):
    world.open("a", user="anna")
    before = world.scheduler.snapshot(world.now)
    with pytest.raises(BadValue, match=r"^cannot "):
        world.tell(UserLimits("anna", **limits))
    with pytest.raises(BadValue, match=r"^cannot "):
        world.tell(UserLimits("new", **limits))
    assert world.scheduler.snapshot(world.now) == before


def test_a_users_sessions_make_way_for_one_another_within_the_limit(world: World):
    world.tell(UserLimits("anna", persistent_bytes=300 * MIB))
    world.want(_open(world, "other", "bert", persistent=100, profile=None))
    world.want(_open(world, "a", "anna", persistent=200, profile=None), iterations=5)
    world.run(5)
    assert world.user_row("anna").persistent_bytes == 200 * MIB
    world.want(_open(world, "b", "anna", persistent=200, profile=None))
    assert world.row("b").reason.code == "user_limit"
    assert "may hold 300 MiB on devices together and hold 200 MiB, and it needs 200 MiB" in world.row("b").reason.text
    assert world.row("b").reason.behind == "a"
    world.run(5)
    assert [one.session for one in world.decided(EvictSession)] == ["a"]
    assert world.row("b").turns > 0
    assert world.row("other").evictions == 0, "there was room enough for everybody but for the limit"
    with pytest.raises(OverLimit, match="cannot bring session a back: anna has 209715200 bytes on devices"):
        world.tell(events.RestoreAsked("a"))


def test_two_of_a_user_that_want_the_device_take_turns_within_the_limit(world: World):
    world.tell(UserLimits("anna", persistent_bytes=300 * MIB))
    world.want(_open(world, "a", "anna", persistent=200, profile=None))
    world.want(_open(world, "b", "anna", persistent=200, profile=None))
    limit = world.user_row("anna").persistent_limit_bytes

    def within() -> None:
        assert world.user_row("anna").persistent_bytes <= limit

    world.on_event = within
    world.run(60)
    assert world.row("a").turns > 2 and world.row("b").turns > 2
    # No thrash: whoever came stays 5 s at least.
    assert world.row("a").evictions + world.row("b").evictions <= 60 / 5 + 1


def test_who_alone_has_more_than_the_limit_comes_last_and_gets_no_more(world: World):
    world.tell(UserLimits("anna", persistent_bytes=100 * MIB))
    world.want(_open(world, "a", "anna", profile=Profile(device_share=1.0, iteration_s=0.05)))
    idle = _open(world, "idle", "anna", persistent=50, profile=None)
    world.want(idle, iterations=1)
    world.want(_open(world, "b", "bert"))
    world.run(3)
    world.guests["a"].measured = True
    world.tell(events.MemoryMeasured("a", 150 * MIB, None))
    world.run(1)
    assert world.row("idle").residency == "evicted", "its user's idle sessions go out first"
    turns = world.row("a").turns
    world.run(5)
    assert world.row("a").turns == turns
    assert world.row("a").reason.code == "user_limit"
    assert world.row("a").reason.text.endswith("; others go first")
    # Alone it goes on: the device doesn't idle.
    world.guests["b"].iterations_left = 1
    world.run(2)
    assert world.row("a").turns > turns
    world.tell(events.GrowthAsked("a", 77, MIB))
    refusal = world.decided(RefuseGrowth)[-1]
    assert "the limit of all sessions of anna is 104857600" in refusal.message
    # Once the limit rises, or it is small again, it is like the others.
    world.run(1)
    world.want(world.guests["b"])
    world.want(world.guests["a"])
    world.run(1)
    turns = world.row("a").turns
    world.tell(UserLimits("anna", persistent_bytes=200 * MIB))
    world.run(2)
    assert world.row("a").turns > turns


def test_one_that_alone_is_over_the_limit_comes_back_all_the_same(world: World):
    a = _open(world, "a", "anna", persistent=200, profile=None)
    world.want(a, iterations=2)
    world.run(3)
    world.tell(events.EvictAsked("a"))
    world.run(1)
    world.tell(UserLimits("anna", persistent_bytes=100 * MIB))
    world.want(a, iterations=2)
    world.run(3)
    assert world.row("a").residency == "resident"
    assert world.row("a").iterations == 4


def test_host_memory_of_a_user_bounds_what_is_moved_out(world: World):
    world.tell(UserLimits("anna", host_bytes=250 * MIB))
    for name in "abc":
        world.want(_open(world, name, "anna", persistent=200, profile=None), iterations=1)
        world.run(2)
    big = _open(world, "big", "bert", persistent=700, profile=None)
    world.want(big)
    world.run(5)
    assert world.user_row("anna").host_bytes <= 250 * MIB
    assert world.row("big").turns == 0, "only one of the three may go out, which isn't enough"
    world.tell(events.EvictAsked("a"))
    world.run(1)
    with pytest.raises(
        OverLimit, match="cannot move session b out: anna has 209715200 bytes in host memory, it would be"
    ):
        world.tell(events.EvictAsked("b"))
    world.tell(UserLimits("anna"))
    world.run(5)
    assert world.row("big").turns > 0
    assert world.user_row("anna").host_bytes == 400 * MIB
    world.crash(world.guests["a"])
    assert world.user_row("anna").host_bytes == 200 * MIB


def test_with_one_user_everything_is_as_without_users():
    """The user's weight and account are there, and change no decision."""
    stories = []
    for weight in (1.0, 0.3):
        world = World(seed=5, checking=False)
        world.device()
        world.tell(UserLimits("u", weight=weight))
        for number in range(6):
            world.want(world.open(f"s{number}", persistent=50, ephemeral=200, iteration_s=0.07))
            world.run(0.3)
        world.run(20)
        stories.append([(now, decided) for now, _, decided in world.story])
    assert stories[0] == stories[1]
