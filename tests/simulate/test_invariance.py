"""What must not change when something changes that the scheduler can't know, and what must change with the scale of time."""

from __future__ import annotations

import csv
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.policies import POLICIES, SHARES, TRACE, WORKLOADS, Bench
from jupyter_salus.backend.core.config import Config
from jupyter_salus.simulate import machine
from jupyter_salus.simulate.model import DeviceModel
from jupyter_salus.simulate.table import MIB
from tests.simulate.log_checker import first_difference
from tests.simulate.stories import Lines, story

CAPACITY_MIB = 15_360


def beginning(count: int, *, shortened: int = 8) -> list[dict[str, Any]]:
    """The first jobs of the trace, arriving faster and each with an eighth of its work, so that they crowd as in the whole."""
    with TRACE.open() as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))[:count]
    for row in rows:
        row["iterations"] = max(int(row["iterations"]) // shortened, 5)
        row["submit_time"] = float(row["submit_time"]) / shortened
        row["duration"] = float(row["duration"]) / shortened
    return rows


@pytest.mark.parametrize("knowledge", ["progress", "none"])
@pytest.mark.parametrize("policy", POLICIES)
def test_scrambled_durations_change_nothing(bench, policy, knowledge):
    rows = beginning(12)
    scrambled = [{**row, "duration": other["duration"]} for row, other in zip(rows, rows[::-1], strict=True)]
    first, _ = story(bench, bench.trace("t", rows), SHARES, policy, CAPACITY_MIB, knowledge=knowledge)
    second, _ = story(bench, bench.trace("t", scrambled), SHARES, policy, CAPACITY_MIB, knowledge=knowledge)
    assert first_difference(first, second) is None


def test_declared_durations_do_matter(bench):
    rows = beginning(12)
    scrambled = [{**row, "duration": other["duration"]} for row, other in zip(rows, rows[::-1], strict=True)]
    first, _ = story(bench, bench.trace("t", rows), SHARES, "srtf", CAPACITY_MIB, knowledge="declared")
    second, _ = story(bench, bench.trace("t", scrambled), SHARES, "srtf", CAPACITY_MIB, knowledge="declared")
    assert first_difference(first, second) is not None


@pytest.mark.parametrize("policy", POLICIES)
def test_the_number_of_iterations_changes_nothing_before_the_first_end_if_it_is_not_known(bench, policy):
    rows = beginning(10)
    longer = [{**row, "iterations": row["iterations"] * 2} for row in rows]
    first, _ = story(bench, bench.trace("t", rows), SHARES, policy, CAPACITY_MIB, knowledge="none")
    second, _ = story(bench, bench.trace("t", longer), SHARES, policy, CAPACITY_MIB, knowledge="none")
    ends = [line["t"] for line in first if line["event"] == "finish"]
    difference = first_difference(first, second)
    assert difference is not None
    assert difference >= min(ends)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_truncated_trace_gives_the_same_log_up_to_the_cut(bench, policy):
    rows = beginning(15)
    cut = rows[10]["submit_time"]
    whole, _ = story(bench, bench.trace("t", rows), SHARES, policy, CAPACITY_MIB)
    part, _ = story(bench, bench.trace("t", rows[:10]), SHARES, policy, CAPACITY_MIB)
    difference = first_difference(whole, part)
    assert difference is not None
    assert difference >= cut


def doubled(config: Config) -> Config:
    """The same settings on a clock that goes half as fast."""
    values: dict[str, Any] = {}
    for field in fields(config):
        if field.name.endswith("_per_s"):
            values[field.name] = getattr(config, field.name) / 2
        elif field.name.endswith("_s"):
            value = getattr(config, field.name)
            values[field.name] = tuple(2 * one for one in value) if isinstance(value, tuple) else 2 * value
    return replace(config, **values)


def slow_profiles(bench: Bench, profiles: Path) -> Path:
    with profiles.open() as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    return bench.profiles("slow", [{**row, "iteration_ms": 2 * float(row["iteration_ms"])} for row in rows])


@pytest.mark.parametrize("policy", POLICIES)
def test_doubled_times_double_all_times(bench, policy, monkeypatch):
    rows = beginning(12)
    slow = [{**row, "submit_time": 2 * row["submit_time"]} for row in rows]
    model = DeviceModel(CAPACITY_MIB * MIB, interference=0.05)
    fast_lines, _ = story(bench, bench.trace("t", rows), SHARES, policy, CAPACITY_MIB, model=model)
    monkeypatch.setattr(machine, "CLOSE_REPORT_S", 2 * machine.CLOSE_REPORT_S)
    monkeypatch.setattr(machine, "STEADY_REPORT_S", 2 * machine.STEADY_REPORT_S)
    model = replace(
        model, move_s=2 * model.move_s, move_bytes_per_s=model.move_bytes_per_s / 2, switch_s=2 * model.switch_s
    )
    core = doubled(Config())
    slow_lines, _ = story(
        bench, bench.trace("slow-t", slow), slow_profiles(bench, SHARES), policy, CAPACITY_MIB, model=model, core=core
    )
    # Comparing by `==` would let pytest work out a difference of ten thousand lines.
    assert first_difference(slow_lines, at_half_speed(fast_lines)) is None


def at_half_speed(lines: Lines) -> Lines:
    return [{**line, "t": 2 * line["t"]} for line in lines]


@pytest.mark.parametrize("policy", POLICIES)
def test_doubled_iteration_times_alone_double_the_makespan(bench, policy):
    # The scheduler's own times (quantum, `max_wait`) stay, so single jobs may end a little earlier or later.
    rows = beginning(12)
    slow = [{**row, "submit_time": 2 * row["submit_time"]} for row in rows]
    _, fast_report = story(bench, bench.trace("t", rows), WORKLOADS, policy, CAPACITY_MIB)
    slow_trace = bench.trace("slow-t", slow)
    _, slow_report = story(bench, slow_trace, slow_profiles(bench, WORKLOADS), policy, CAPACITY_MIB)
    assert slow_report.makespan_s == pytest.approx(2 * fast_report.makespan_s, rel=0.02)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_run_gives_the_same_log(bench, policy):
    trace = bench.trace("t", beginning(12))
    first, _ = story(bench, trace, SHARES, policy, CAPACITY_MIB)
    second, _ = story(bench, trace, SHARES, policy, CAPACITY_MIB)
    assert first_difference(first, second) is None
