"""Schedulers with a fault put in: what checks a run from outside has to see each of them.

They stay here so that the checks are known to bite. Each fault is one that no figure of a run would show by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.policies import SHARES, WORKLOADS, Bench
from jupyter_salus.backend.core import events, moves
from jupyter_salus.backend.core.decisions import Decision
from jupyter_salus.backend.core.scheduler import Scheduler
from jupyter_salus.backend.core.session import Session
from jupyter_salus.backend.core.state import State
from tests.simulate.log_checker import Facts, Violation, check_eviction_order, first_difference
from tests.simulate.stories import story
from tests.simulate.test_invariance import CAPACITY_MIB, beginning


class WithoutSafe(Scheduler):
    """Never looks whether anything fits."""

    def handle(self, event: events.Event, now: float) -> list[Decision]:
        if isinstance(event, events.DeviceMeasured):
            event = replace(event, capacity_bytes=100 * event.capacity_bytes)
        return super().handle(event, now)


class Knowing(Scheduler):
    """Reads the trace's durations, whatever it was told."""

    def __init__(self, durations_s: dict[str, float]) -> None:
        super().__init__()
        self._durations_s = durations_s

    def handle(self, event: events.Event, now: float) -> list[Decision]:
        if isinstance(event, events.SessionOpened) and event.profile is not None:
            profile = replace(event.profile, declared_s=self._durations_s[event.session])
            event = replace(event, profile=profile)
        return super().handle(event, now)


def test_a_scheduler_without_safe_is_seen(bench):
    trace = bench.trace("t", beginning(12))
    with pytest.raises(Violation, match="MiB are committed of 15360"):
        story(bench, trace, SHARES, "fair", CAPACITY_MIB, scheduler=WithoutSafe())


def crowd(bench: Bench) -> tuple[Any, Facts]:
    trace = bench.trace("t", beginning(60))
    return trace, Facts.read(trace, WORKLOADS, CAPACITY_MIB)


def test_waiting_sessions_go_out_last_first(bench):
    trace, facts = crowd(bench)
    lines, _ = story(bench, trace, WORKLOADS, "srtf", CAPACITY_MIB)
    check_eviction_order(lines, facts)


def test_a_scheduler_that_evicts_the_first_ones_first_is_seen(bench, monkeypatch):
    right = moves.find_victims

    def first_ones(state: State, session: Session, shortage: int, staying: Any, now: float) -> list[Session] | None:
        found = right(state, session, shortage, staying, now)
        place = (state.key(session, now), session.number)
        chosen: list[Session] = []
        for entry in session.device.ready.entries:
            victim = entry[2]
            if shortage <= 0:
                break
            if entry[:2] > place and victim not in staying and victim is not session and state.can_go(victim, now):
                chosen.append(victim)
                shortage -= victim.held_bytes + victim.stopped_bytes
        return found if found is None or shortage > 0 else chosen

    monkeypatch.setattr(moves, "find_victims", first_ones)
    trace, facts = crowd(bench)
    lines, _ = story(bench, trace, WORKLOADS, "srtf", CAPACITY_MIB)
    with pytest.raises(Violation, match="rank at"):
        check_eviction_order(lines, facts)


def test_a_scheduler_that_knows_durations_is_seen(bench):
    rows = beginning(16)
    scrambled = [{**row, "duration": other["duration"]} for row, other in zip(rows, rows[::-1], strict=True)]
    logs = []
    for version in (rows, scrambled):
        knowing = Knowing({str(row["job_id"]): float(row["duration"]) for row in version})
        trace = bench.trace("t", version)
        logs.append(story(bench, trace, SHARES, "srtf", CAPACITY_MIB, knowledge="none", scheduler=knowing)[0])
    assert first_difference(*logs) is not None
