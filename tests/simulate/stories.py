"""Runs whose logs are looked at: who ran when, who was resident."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.policies import Bench
from jupyter_salus.simulate.log import Log
from jupyter_salus.simulate.machine import Machine
from jupyter_salus.simulate.model import DeviceModel
from jupyter_salus.simulate.profiles import read_profiles
from jupyter_salus.simulate.report import Report
from jupyter_salus.simulate.settings import Settings
from jupyter_salus.simulate.table import MIB
from jupyter_salus.simulate.trace import read_trace
from tests.simulate.log_checker import Facts, check_lines

Lines = list[dict[str, Any]]


def story(
    bench: Bench, trace: Path, profiles: Path, policy: str, capacity_mib: float, *, scheduler: Any = None, **more: Any
) -> tuple[Lines, Report]:
    """The checked log of a run, and its figures. `more` goes to the settings; `scheduler`: another one than usual."""
    path = bench.directory / "story.log"
    model = more.pop("model", DeviceModel(round(capacity_mib * MIB)))
    settings = Settings(policy, model, **{"core": bench.config, **more})
    with path.open("w") as stream:
        jobs = read_trace(trace, read_profiles(profiles))
        report = Machine(jobs, settings, Log(stream), scheduler).run().report()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    facts = Facts.read(
        trace,
        profiles,
        capacity_mib,
        interference=model.interference,
        switch_s=model.switch_s,
        move_s=model.move_s,
        move_mib_s=model.move_bytes_per_s / MIB,
        learned_memory=settings.memory == "learned",
    )
    books = check_lines(lines, facts)
    assert abs(books.committed_max_mib - report.peak_committed_mib) < 1e-3
    assert abs(books.makespan_s - report.makespan_s) < 1e-3
    return lines, report


def iterations_between(lines: Lines, begin_s: float, end_s: float) -> Counter[str]:
    """Iterations that ended in a span of time, by job."""
    return Counter(line["job"] for line in lines if line["event"] == "iteration" and begin_s < line["t"] <= end_s)


def device_seconds(lines: Lines, begin_s: float, end_s: float) -> dict[str, float]:
    """Seconds in which each job ran within a span of time."""
    seconds: dict[str, float] = {}
    since: dict[str, float] = {}
    for line in lines:
        if line["event"] == "run":
            since[line["job"]] = line["t"]
        elif line["event"] == "stop":
            ran = min(line["t"], end_s) - max(since.pop(line["job"]), begin_s)
            if ran > 0:
                seconds[line["job"]] = seconds.get(line["job"], 0.0) + ran
    return seconds


def residents_at(lines: Lines, time_s: float) -> int:
    """How many jobs were resident at this time."""
    resident: set[str] = set()
    for line in lines:
        if line["t"] > time_s:
            break
        if line["event"] == "resident":
            resident.add(line["job"])
        elif line["event"] in ("evict", "finish", "refuse"):
            resident.discard(line["job"])
    return len(resident)
