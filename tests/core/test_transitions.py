"""The table of what a session may become."""

from __future__ import annotations

import pytest

from jupyter_salus.backend.core.session import Session
from jupyter_salus.backend.core.transitions import RESIDENCIES, TURNS, Residency, Turn, visible
from jupyter_salus.errors import IllegalTransition

from .world import World


def _session(world: World) -> Session:
    world.open("a")
    return world.scheduler._state.sessions["a"]


@pytest.mark.parametrize("old", Turn)
@pytest.mark.parametrize("new", Turn)
def test_a_turn_moves_only_where_the_table_has_a_way(world: World, old: Turn, new: Turn):
    session = _session(world)
    session.turn = old
    if new in TURNS[old]:
        session.to_turn(new)
        assert session.turn is new
    else:
        with pytest.raises(IllegalTransition, match="cannot bring the turn of session a"):
            session.to_turn(new)
        assert session.turn is old
    session.turn = Turn.NONE


@pytest.mark.parametrize("old", Residency)
@pytest.mark.parametrize("new", Residency)
def test_a_residency_moves_only_where_the_table_has_a_way(world: World, old: Residency, new: Residency):
    session = _session(world)
    session.residency = old
    if new in RESIDENCIES[old]:
        session.to_residency(new)
        assert session.residency is new
    else:
        with pytest.raises(IllegalTransition, match="cannot bring session a from"):
            session.to_residency(new)
        assert session.residency is old
    session.residency = Residency.ABSENT


def test_every_state_can_be_reached_and_only_closed_is_an_end():
    assert set(TURNS) == set(Turn)
    assert set(RESIDENCIES) == set(Residency)
    assert {new for news in TURNS.values() for new in news} == set(Turn)
    assert {new for news in RESIDENCIES.values() for new in news} == set(Residency) - {Residency.ABSENT}
    assert [old for old, news in RESIDENCIES.items() if not news] == [Residency.CLOSED]


@pytest.mark.parametrize(
    ("turn", "residency", "broken", "shown"),
    [
        (Turn.NONE, Residency.ABSENT, False, "none"),
        (Turn.NONE, Residency.RESIDENT, False, "holding"),
        (Turn.NONE, Residency.EVICTED, False, "evicted"),
        (Turn.WAITING, Residency.EVICTED, False, "waiting"),
        (Turn.WAITING, Residency.RESTORING, False, "restoring"),
        (Turn.WAITING, Residency.EVICTING, False, "evicting"),
        (Turn.RUNNING, Residency.RESIDENT, False, "running"),
        (Turn.BLOCKED, Residency.RESIDENT, False, "waiting"),
        (Turn.YIELDING, Residency.RESIDENT, False, "yielding"),
        (Turn.STOPPING, Residency.RESIDENT, False, "yielding"),
        (Turn.LOST, Residency.RESIDENT, False, "yielding"),
        (Turn.NONE, Residency.RESIDENT, True, "broken"),
        (Turn.NONE, Residency.LEAVING, True, "leaving"),
        (Turn.NONE, Residency.CLOSED, False, "closed"),
    ],
)
def test_what_people_see_comes_from_turn_and_residency(turn: Turn, residency: Residency, broken: bool, shown: str):
    assert visible(turn, residency, broken=broken) == shown
