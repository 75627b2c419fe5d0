"""Ledger, lanes and orders by themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_salus.backend.core.lane import Lane
from jupyter_salus.backend.core.ledger import Ledger
from jupyter_salus.backend.core.order import Order
from jupyter_salus.backend.core.session import Session
from jupyter_salus.errors import IllegalTransition, LedgerOverdrawn

from .world import World


def _sessions(count: int) -> list[Session]:
    world = World()
    world.device()
    for number in range(count):
        world.open(f"s{number}")
    return list(world.scheduler._state.sessions.values())


def test_the_ledger_gives_no_more_than_there_is_and_changes_nothing_then():
    ledger = Ledger("gpu", 100, foreign=20, reserve=10)
    ledger.take_held(50)
    with pytest.raises(LedgerOverdrawn, match="cannot give 21 bytes of device gpu: 20 are free"):
        ledger.take_lanes(21)
    assert (ledger.held, ledger.lanes, ledger.free) == (50, 0, 20)
    ledger.take_lanes(20)
    assert ledger.free == 0


def test_what_is_observed_may_overdraw_the_ledger_and_then_nothing_is_given():
    ledger = Ledger("gpu", 100, 0, 0)
    ledger.observe_held(120)
    assert ledger.free == -20
    assert ledger.overdrawn_to == 120
    with pytest.raises(LedgerOverdrawn):
        ledger.take_held(1)
    ledger.take_held(-30)
    ledger.take_held(10)
    assert ledger.free == 0


def test_a_lane_is_as_large_as_its_largest_member_needs():
    a, b, c = _sessions(3)
    ledger = Ledger("gpu", 100, 0, 0)
    lane = Lane(1, "gpu", ledger, {})
    lane.add(a, 30)
    lane.add(b, 50)
    lane.add(c, 10)
    assert (lane.size, ledger.lanes, lane.largest) == (50, 50, b)
    lane.resize(b, 20)
    assert (lane.size, ledger.lanes, lane.largest) == (30, 30, a)
    lane.resize(c, 90)
    assert lane.size == 90
    lane.remove(c)
    lane.remove(a)
    assert (lane.size, ledger.lanes, lane.members) == (20, 20, [b])
    lane.remove(b)
    assert (lane.size, ledger.lanes, len(lane)) == (0, 0, 0)


def test_a_member_that_does_not_fit_is_not_let_in():
    a, b = _sessions(2)
    ledger = Ledger("gpu", 100, 0, 0)
    lane = Lane(1, "gpu", ledger, {})
    lane.add(a, 30)
    with pytest.raises(LedgerOverdrawn):
        lane.add(b, 101)
    with pytest.raises(LedgerOverdrawn):
        lane.resize(a, 101)
    assert (b.lane, lane.size, ledger.lanes) == (None, 30, 30)


def test_nobody_is_in_two_lanes_and_the_holder_cannot_be_taken_out():
    a, b = _sessions(2)
    ledger = Ledger("gpu", 100, 0, 0)
    unused: dict[str, Lane] = {}
    lane, other = Lane(1, "gpu", ledger, unused), Lane(2, "gpu", ledger, unused)
    lane.add(a, 30)
    with pytest.raises(IllegalTransition, match="cannot add session s0 to lane gpu/2: it is in lane gpu/1"):
        other.add(a, 30)
    lane.add(b, 40)
    lane.hold(a)
    assert (lane.least, ledger.least, list(unused)) == (30, 30, ["gpu/2"])
    with pytest.raises(IllegalTransition, match="cannot take session s0 out of lane gpu/1: it holds the lane"):
        lane.remove(a)
    lane.resize(a, 35)
    assert ledger.least == 35
    lane.let_go()
    lane.let_go()
    assert (lane.least, ledger.least, len(unused)) == (0, 0, 2)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), max_size=60))
def test_an_order_is_always_sorted_by_key_then_number(steps: list[tuple[int, int, bool]]):
    sessions = _sessions(6)
    order = Order()
    model: dict[Session, tuple[float, ...]] = {}
    for index, value, put in steps:
        session = sessions[index]
        if put:
            order.put(session, (float(value),))
            model[session] = (float(value),)
        else:
            order.discard(session)
            model.pop(session, None)
        expected = sorted(model, key=lambda one: (model[one], one.number))
        assert list(order) == expected
        assert list(reversed(order)) == expected[::-1]
        assert order.first() is (expected[0] if expected else None)
        assert order.last() is (expected[-1] if expected else None)
        assert len(order) == len(expected)
        for position, one in enumerate(expected):
            assert order.position(one) == position
            assert one in order
        for bound in range(4):
            later = [one for one in expected if model[one] >= (float(bound),)]
            assert order.since((float(bound),)) is (later[0] if later else None)
