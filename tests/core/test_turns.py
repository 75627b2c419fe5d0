"""Turns: given, passed on, revoked, stopped, lost; and messages that come too late."""

from __future__ import annotations

from itertools import pairwise

import pytest

from jupyter_salus.backend.core import decisions, events
from jupyter_salus.backend.core.decisions import GrantTurn, RevokeTurn, StopTurn
from jupyter_salus.errors import BadValue, NotPossible, UnknownDevice, UnknownSession

from .world import MIB, World


def test_the_first_one_gets_a_turn_at_once_and_keeps_it_while_nobody_waits(world: World):
    world.want(world.open("a"))
    world.run(60)
    assert world.holders() == ["a"]
    assert len(world.decided(GrantTurn)) == 1
    assert not world.decided(RevokeTurn)


def test_a_lone_session_needs_no_deadline_but_the_starvation_clock(host: World):
    a = host.open("a", device="host")
    host.want(a)
    host.run(0.05)
    deadline = host.scheduler.next_deadline()
    assert deadline is not None and deadline >= host.config.max_wait_s


def test_two_sessions_of_one_lane_take_turns_by_the_quantum(host: World):
    for name in "ab":
        host.want(host.open(name, device="host", iteration_s=0.02))
    host.run(10)
    grants = [decision.session for decision in host.decided(GrantTurn) if isinstance(decision, GrantTurn)]
    assert len(grants) > 50
    assert all(one != other for one, other in pairwise(grants))
    assert abs(host.row("a").used_s - host.row("b").used_s) < 0.3
    assert len({decision.lane for decision in host.decided(GrantTurn) if isinstance(decision, GrantTurn)}) == 1


def test_a_turn_lasts_one_iteration_at_least(host: World):
    for name in "ab":
        host.want(host.open(name, device="host", iteration_s=3.0))
    host.run(60)
    # A turn is revoked in its first iteration; only the very first one, without a waiter, is longer.
    assert host.row("a").iterations == pytest.approx(host.row("a").turns, abs=2)
    assert host.row("b").turns >= 5


def test_late_release_of_old_epoch_is_ignored_and_counted(host: World):
    a, b = (host.open(name, device="host") for name in "ab")
    host.want(a)
    old = a.epoch
    assert old is not None
    host.want(b)
    host.run(1)
    before = host.holders("host")
    host.tell(events.TurnReleased("a", old))
    host.tell(events.IterationsFinished("a", old, 1, 0.1))
    host.tell(events.TurnWithdrawn("a", 0))
    host.tell(events.GrowthWithdrawn("a", 7))
    host.tell(events.SessionEvicted("a", 12345, 0.1, MIB))
    host.tell(events.SessionRestored("nobody", 12345, 0.1))
    assert host.holders("host") == before
    assert host.scheduler.ignored == {
        "TurnReleased": 1,
        "IterationsFinished": 1,
        "TurnWithdrawn": 1,
        "GrowthWithdrawn": 1,
        "SessionEvicted": 1,
        "SessionRestored": 1,
    }


def test_a_withdrawn_wait_gets_no_turn(host: World):
    a, b = (host.open(name, device="host") for name in "ab")
    host.want(a)
    host.want(b)
    b.wanting = False
    host.tell(events.TurnWithdrawn("b", b.ticket))
    host.run(5)
    assert host.holders("host") == ["a"]
    assert host.row("b").state == "holding"
    host.want(b)
    host.run(2)
    assert host.row("b").turns > 0


def test_a_second_request_while_waiting_is_the_same_wait_under_a_new_ticket(host: World):
    a, b = (host.open(name, device="host") for name in "ab")
    host.want(a)
    host.want(b)
    b.ticket = 99
    host.tell(events.TurnRequested("b", 99))
    host.run(2)
    assert any(isinstance(one, GrantTurn) and one.ticket == 99 for one in host.decided(GrantTurn))


def test_a_request_in_a_turn_is_not_possible(host: World):
    host.want(host.open("a", device="host"))
    with pytest.raises(NotPossible, match="cannot let session a wait for a turn: it has one"):
        host.tell(events.TurnRequested("a", 2))


def test_illegal_events_raise_and_change_nothing(world: World):
    world.want(world.open("a"))
    before = world.scheduler.snapshot(world.now)
    for event, error in [
        (events.TurnRequested("nobody", 1), UnknownSession),
        (events.CellStarted("nobody"), UnknownSession),
        (events.BytesFreed("a"), UnknownSession),
        (events.SessionOpened("b", "u", "nowhere"), UnknownDevice),
        (events.SessionOpened("b", "u", "gpu", priority="urgent"), BadValue),
        (events.SessionOpened("a", "u", "gpu"), BadValue),
        (events.PriorityChanged("a", "urgent"), BadValue),
        (events.PolicyChanged("gpu", "lottery"), BadValue),
        (events.PolicyChanged("nowhere", "fair"), UnknownDevice),
        (events.RestoreAsked("a"), NotPossible),
    ]:
        with pytest.raises(error, match=r"^cannot "):
            world.tell(event)
        assert world.scheduler.snapshot(world.now) == before


def test_cells_are_taken_note_of(world: World):
    world.open("a")
    world.tell(events.CellStarted("a"))
    world.tell(events.CellFinished("a"))
    assert world.row("a").state == "none"


def test_time_never_goes_back(world: World):
    world.open("a")
    world.scheduler.handle(events.TurnRequested("a", 1), 5.0)
    world.scheduler.handle(events.TurnReleased("a", world.row("a").turns and world.scheduler._state.number), 3.0)
    assert world.row("a").used_s == 0.0


def _why(world: World, id: str) -> str:
    reason = world.row(id).reason
    assert reason is not None
    return reason.text


def test_a_turn_that_does_not_end_is_stopped_again_and_again_and_then_taken_back_in_the_books(host: World):
    a, b = (host.open(name, device="host", iteration_s=1e9, ephemeral=100) for name in "ab")
    host.want(a)
    epoch = a.epoch
    assert epoch is not None
    host.want(b)
    host.run(0.5)
    told = [_why(host, "b")]
    host.run(3.0)
    told.append(_why(host, "b"))
    assert told[0].endswith("is finishing its iteration")
    assert told[1].endswith("was asked for its turn and has come to no boundary for more than 2 s")
    host.run(host.config.revoke_unknown_s - 2.5)
    assert host.row("a").turn == "stopping"
    assert _why(host, "b").endswith("for more than 60 s")
    host.run(sum(host.config.stop_waits_s))
    assert len(host.decided(StopTurn)) == len(host.config.stop_waits_s)
    assert host.row("a").turn == "lost"
    assert host.row("a").reason is not None and host.row("a").reason.code == "lost"
    assert b.epoch is not None
    # What it still uses counts beside the lane.
    assert host.device_row("host").free_bytes == (1000 - 20 - 200) * MIB
    # It goes on, and is charged for that.
    used_s = host.row("a").used_s
    host.run(10.0)
    assert host.row("a").used_s == pytest.approx(used_s + 10.0)
    a.epoch = None
    a.ticket += 1
    a.wanting = True
    host.tell(events.IterationsFinished("a", epoch, 1, 70.0))
    host.tell(events.TurnReleased("a", epoch, a.ticket))
    assert host.row("a").turn == "waiting"
    assert host.row("a").used_s == pytest.approx(used_s + 10.0)
    assert host.device_row("host").free_bytes == (1000 - 20 - 100) * MIB


def test_a_lost_turn_that_ends_leaves_the_session_idle(host: World):
    a, b = (host.open(name, device="host", iteration_s=1e9) for name in "ab")
    host.want(a)
    epoch = a.epoch
    assert epoch is not None
    host.want(b)
    host.run(host.config.revoke_unknown_s + 10)
    a.epoch = None
    host.tell(events.TurnReleased("a", epoch))
    assert host.row("a").state == "holding"


def test_the_deadline_of_a_revoked_turn_follows_the_learned_iteration(host: World):
    for name in "ab":
        host.want(host.open(name, device="host", iteration_s=4.0))
    host.run(60)
    last = [one for one in host.decided(RevokeTurn) if isinstance(one, RevokeTurn)][-1]
    assert 4.8 <= last.deadline_s <= 7.2


def test_a_stopped_session_keeps_its_ephemeral_bytes_and_brings_them_along(world: World):
    a = world.open("a", ephemeral=300, iteration_s=1e9)
    world.want(a)
    assert a.epoch is not None
    world.tell(events.YieldAsked("a"))
    epoch, a.epoch = a.epoch, None
    a.ticket += 1
    a.wanting = True
    b = world.open("b", ephemeral=600, iteration_s=0.1)
    world.want(b)
    world.tell(events.TurnReleased("a", epoch, a.ticket, stopped_bytes=200 * MIB))
    assert b.epoch is not None
    row = world.row("a")
    assert (row.turn, row.lane) == ("waiting", None)
    world.crash(b)
    world.run(1)
    assert world.holders() == ["a"]
    assert world.row("a").lane is not None


def test_a_session_that_is_gone_passes_its_turn_on_at_once(host: World):
    a, b = (host.open(name, device="host", persistent=100) for name in "ab")
    host.want(a)
    host.want(b)
    host.crash(a, freed_after_s=20)
    assert b.epoch is not None
    assert host.row("a").state == "leaving"
    free = host.device_row("host").free_bytes
    host.run(25)
    assert "a" not in {row.id for row in host.scheduler.snapshot(host.now).sessions}
    assert host.device_row("host").free_bytes > free


def test_a_restarted_kernel_opens_under_its_id_while_the_old_bytes_are_still_there(host: World):
    a = host.open("a", device="host", persistent=100)
    host.want(a)
    host.crash(a, freed_after_s=3)
    again = host.open("a", device="host", persistent=100)
    host.want(again)
    assert again.epoch is not None
    assert host.device_row("host").free_bytes == (1000 - 210 - 10) * MIB
    host.run(4)
    assert host.device_row("host").free_bytes == (1000 - 110) * MIB


def test_a_broken_session_gives_its_turn_back_and_gets_no_other(host: World):
    a, b = (host.open(name, device="host") for name in "ab")
    host.want(a)
    host.want(b)
    a.epoch = None
    host.tell(events.SessionBroken("a", "illegal memory access"))
    assert b.epoch is not None
    assert (host.row("a").state, host.row("a").broken) == ("broken", "illegal memory access")
    with pytest.raises(NotPossible, match="cannot give session a a turn: illegal memory access"):
        host.tell(events.TurnRequested("a", 5))


def test_who_is_asked_to_yield_comes_after_the_others_once(host: World):
    a, b = (host.open(name, device="host", iteration_s=0.05) for name in "ab")
    host.tell(events.PolicyChanged("host", "fifo"))
    host.want(a)
    host.want(b)
    host.run(3)
    assert host.row("b").turns == 0
    host.tell(events.YieldAsked("a"))
    host.run(1)
    assert b.epoch is not None
    with pytest.raises(NotPossible, match="cannot let session a pass its turn on: it has none"):
        host.tell(events.YieldAsked("a"))


def test_a_silent_request_waits_for_all_others(host: World):
    a, b, c = (host.open(name, device="host", iteration_s=0.05) for name in "abc")
    host.want(a)
    c.ticket, c.wanting = 1, True
    host.tell(events.TurnRequested("c", 1, silent=True))
    host.want(b)
    host.run(5)
    assert host.row("b").turns > 3
    assert host.row("c").turns == 0
    assert host.row("c").reason is not None and host.row("c").reason.code == "silent"


def test_a_session_that_had_a_turn_when_the_backend_went_goes_on_under_a_new_epoch(host: World):
    a = host.open("a", device="host")
    host.want(a)
    for name in ("b", "c"):
        guest = host.open(name, device="host")
        host.crash(guest)
        del guest
    before = host.last_epoch
    decided = host.scheduler.handle(
        events.SessionOpened("d", "u", "host", holding=True, persistent_bytes=50 * MIB), host.now
    )
    host.scheduler.check_invariants()
    grants = [one for one in decided if isinstance(one, decisions.GrantTurn)]
    assert [one.session for one in grants] == ["d"]
    assert grants[0].epoch > before
    assert host.row("d").residency == "resident"
    host.scheduler.handle(events.TurnReleased("d", grants[0].epoch), host.now)


def test_a_session_that_comes_back_with_bytes_is_resident(world: World):
    world.tell(events.SessionOpened("a", "u", "gpu", persistent_bytes=70 * MIB))
    assert world.row("a").state == "holding"
    assert world.device_row().free_bytes == 930 * MIB


def test_the_quantum_lengthens_until_hand_overs_are_cheap_but_not_for_interactive_waiters():
    world = World(grows=False)
    world.device("host", moves=False, side_by_side=False)
    scheduler = world.scheduler
    a = world.open("a", device="host", iteration_s=0.05)
    b = world.open("b", device="host", iteration_s=0.05)
    device = scheduler._state.devices["host"]
    device.handover_s = 0.005
    from jupyter_salus.backend.core.turns import quantum_s

    world.want(a)
    world.want(b)
    session = scheduler._state.sessions["a"]
    assert quantum_s(scheduler._state, session) == pytest.approx(world.config.quantum_s)
    device.handover_s = 0.005
    waiting = scheduler._state.sessions["b"]
    waiting.credit.start, waiting.credit.used_s = world.now, 10.0
    assert quantum_s(scheduler._state, session) == pytest.approx(0.5)


def test_a_long_quantum_ends_after_a_plain_one_when_an_interactive_session_begins_to_wait():
    world = World(grows=False)
    world.device("host", moves=False, side_by_side=False)
    state = world.scheduler._state
    training = world.open("training", device="host", iteration_s=0.01)
    other = world.open("other", device="host", iteration_s=0.01)
    for one in ("training", "other"):
        credit = state.sessions[one].credit
        credit.start, credit.used_s = world.now, 10.0
    state.devices["host"].handover_s = 0.02
    world.want(training)
    world.want(other)
    holder = state.sessions["training"]
    assert holder.quantum_end - world.now == pytest.approx(2.0)
    world.want(world.open("interactive", device="host", iteration_s=0.01))
    assert holder.quantum_end - world.now == pytest.approx(world.config.quantum_s)


@pytest.mark.parametrize("policy", ["fair", "fifo", "srtf", "pack", "priority"])
def test_of_two_turns_that_meet_at_a_new_backend_one_is_asked_for_where_one_lane_is_open(host: World, policy: str):
    host.tell(events.PolicyChanged("host", policy))
    early = host.open("early", device="host")
    host.want(early)
    assert host.holders("host") == ["early"]
    back = events.SessionOpened("late", "u", "host", holding=True, persistent_bytes=50 * MIB)
    decided = host.scheduler.handle(back, host.now)
    assert [one.session for one in decided if isinstance(one, GrantTurn)] == ["late"]
    asked = [one.session for one in decided if isinstance(one, RevokeTurn)]
    assert len(asked) == 1 and asked[0] in {"early", "late"}
    host.scheduler.check_invariants()
