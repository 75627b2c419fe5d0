"""How many iterations a plain loop did, from the few that were looked at."""

from __future__ import annotations

import types

import pytest

from jupyter_salus.guest import rhythm
from jupyter_salus.guest.rhythm import EDGES, FIRST_S, PATIENCE_S, Rhythm


class Clock(types.SimpleNamespace):
    """Stands in for the module `time`."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that `Rhythm` reads."""
    made = Clock()
    monkeypatch.setattr(rhythm, "time", made)
    return made


def looked_at(clock: Clock) -> Rhythm:
    """A turn whose loop was looked at and does an iteration a millisecond."""
    made = Rhythm()
    made.begin_cell()
    made.begin_turn()
    clock.now += FIRST_S
    assert made.looks(clock.now)
    for _ in range(EDGES):
        clock.now += 0.001
        made.beat()
    assert made.iteration_s == pytest.approx(0.001)
    return made


def look_in_vain(made: Rhythm, clock: Clock) -> None:
    """The next look, at which no back-edge comes."""
    clock.now += made.next_s(clock.now)
    assert made.looks(clock.now)
    clock.now += PATIENCE_S + 0.01
    assert not made.looks(clock.now)


def test_a_loop_that_goes_on_ran_all_the_time(clock: Clock) -> None:
    made = looked_at(clock)
    clock.now += 0.5
    assert made.looped_s(clock.now - 0.5, clock.now) == pytest.approx(0.5)


def test_time_after_a_loop_is_no_iterations_of_it(clock: Clock) -> None:
    made, began = looked_at(clock), clock.now
    look_in_vain(made, clock)
    ended_by = clock.now
    look_in_vain(made, clock)
    clock.now += 100.0
    assert made.looped_s(began, clock.now) == pytest.approx((ended_by - began) / 2)
    clock.now += 50.0
    assert made.looped_s(clock.now - 50.0, clock.now) == 0.0


def test_a_loop_that_comes_again_counts_again(clock: Clock) -> None:
    made = looked_at(clock)
    look_in_vain(made, clock)
    clock.now += made.next_s(clock.now)
    assert made.looks(clock.now)
    made.looped_s(clock.now, clock.now)
    for _ in range(EDGES):
        clock.now += 0.001
        made.beat()
    clock.now += 0.7
    assert made.looped_s(clock.now - 0.7, clock.now) == pytest.approx(0.7)


def test_another_turn_begins_anew(clock: Clock) -> None:
    made = looked_at(clock)
    look_in_vain(made, clock)
    made.begin_turn()
    clock.now += 0.3
    assert made.looped_s(clock.now - 0.3, clock.now) == pytest.approx(0.3)
