"""The virtual machine in the corners that ordinary traces don't reach: stops in mid-iteration, refusals, several devices."""

from __future__ import annotations

import json

import pytest

from benchmarks.policies import Bench
from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.decisions import Decision, GrantTurn, RevokeTurn, StopTurn
from jupyter_salus.backend.core.scheduler import Scheduler
from jupyter_salus.simulate.clock import Clock
from jupyter_salus.simulate.log import Log
from jupyter_salus.simulate.machine import Machine, Stalled
from jupyter_salus.simulate.model import DeviceModel
from jupyter_salus.simulate.profiles import read_profiles
from jupyter_salus.simulate.settings import Settings
from jupyter_salus.simulate.table import MIB
from jupyter_salus.simulate.trace import read_trace
from tests.simulate.stories import story


class Impatient(Scheduler):
    """Has every turn stopped in mid-iteration as soon as it is revoked."""

    def handle(self, event: events.Event, now: float) -> list[Decision]:
        decided: list[Decision] = []
        for decision in super().handle(event, now):
            decided.append(decision)
            if isinstance(decision, RevokeTurn):
                decided.append(StopTurn(decision.session, decision.epoch))
        return decided


class Forgetful(Scheduler):
    """Never gives a turn."""

    def handle(self, event: events.Event, now: float) -> list[Decision]:
        return [decision for decision in super().handle(event, now) if not isinstance(decision, GrantTurn)]


def long_iterations(bench: Bench) -> tuple:
    profiles = bench.profiles(
        "p", [{"model": "slow", "persistent_mib": 1000, "ephemeral_mib": 3000, "iteration_ms": 900}]
    )
    return bench.trace(
        "t", [{"model_name": "slow_1", "iterations": 10, "submit_time": 0.4 * n} for n in range(3)]
    ), profiles


def test_a_stop_in_mid_iteration_keeps_its_memory_beside_the_lane_and_goes_on_where_it_was(bench):
    trace, profiles = long_iterations(bench)
    lines, report = story(bench, trace, profiles, "fair", 14_336, scheduler=Impatient())
    held = [line for line in lines if line["event"] == "stop" and line["e_mib"] > 0]
    assert len(held) > 5
    assert {line["e_mib"] for line in held} == {3000}
    assert report.jobs_finished == 3
    assert report.makespan_s == pytest.approx(27.0, rel=0.05)


def test_a_scheduler_that_forgets_everybody_is_told_so(bench):
    trace, profiles = long_iterations(bench)
    with pytest.raises(Stalled, match="cannot finish 0, 1, 2"):
        story(bench, trace, profiles, "fifo", 14_336, scheduler=Forgetful())


def test_growth_that_nobody_can_make_room_for_ends_one_job_and_no_more(bench):
    profiles = bench.profiles(
        "p", [{"model": "g", "persistent_mib": 1000, "ephemeral_mib": 6000, "iteration_ms": 900, "gpu_share": 0.4}]
    )
    trace = bench.trace(
        "t", [{"model_name": "g_1", "growth_mib": 500, "iterations": 6, "submit_time": 0.2 * n} for n in (0, 1)]
    )
    jobs = read_trace(trace, read_profiles(profiles))
    model = DeviceModel(10_000 * MIB, host_bytes=0)
    report = Machine(jobs, Settings("fair", model, memory="learned"), Log(None)).run().report()
    assert report.jobs_finished + len(report.jobs_refused) == 2
    assert report.jobs_finished >= 1
    assert report.evictions == 0


def test_an_eviction_in_mid_iteration_takes_what_it_holds_along(bench):
    profiles = bench.profiles(
        "p", [{"model": "g", "persistent_mib": 1000, "ephemeral_mib": 6000, "iteration_ms": 900, "gpu_share": 0.4}]
    )
    rows = [{"model_name": "g_1", "growth_mib": 500, "iterations": 6, "submit_time": at} for at in (0.0, 0.95, 1.0)]
    lines, report = story(bench, bench.trace("t", rows), profiles, "pack", 10_000, memory="learned")
    assert report.jobs_finished == 3
    assert sum(line["event"] == "finish" for line in lines) == 3


def test_each_device_has_its_own_lanes_and_link(bench):
    profiles = bench.profiles("p", [{"model": "n", "persistent_mib": 1000, "ephemeral_mib": 9000, "iteration_ms": 100}])
    trace = bench.trace("t", [{"model_name": "n_1", "iterations": 50}] * 6)
    lines, report = story(bench, trace, profiles, "fair", 12_000, devices=3)
    assert report.makespan_s == pytest.approx(10.0, rel=0.03)
    where = {line["job"]: line["device"] for line in lines if line["event"] == "run"}
    assert sorted(where.values()) == ["gpu0", "gpu0", "gpu1", "gpu1", "gpu2", "gpu2"]


def test_the_clock_keeps_the_order_in_which_equal_times_were_asked_for():
    clock, seen = Clock(), []

    def ask_for_a_time_that_has_passed() -> None:
        seen.append("b")
        clock.at(0.5, lambda: seen.append("late"))

    clock.at(2.0, lambda: seen.append("c"))
    clock.at(1.0, lambda: seen.append("a"))
    clock.at(1.0, ask_for_a_time_that_has_passed)
    clock.run()
    assert seen == ["a", "b", "late", "c"]
    assert clock.now == 2.0


def test_bytes_in_the_log_are_exact(tmp_path):
    path = tmp_path / "log"
    with path.open("w") as stream:
        Log(stream).write(1.25, "member", job="a", device="d", lane="l", persistent_bytes=943_718, ephemeral_bytes=MIB)
    assert json.loads(path.read_text()) == {
        "t": 1.25,
        "event": "member",
        "job": "a",
        "device": "d",
        "lane": "l",
        "p_mib": 943_718 / MIB,
        "e_mib": 1.0,
    }
