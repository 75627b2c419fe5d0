"""The acceptance cases of the policies: every figure that the scheduler has to reach, with one set of defaults.

`python -m benchmarks.policies` prints a table and ends with 1 if a figure is missed. Each run goes through the simulator and
its log through the checker of the tests, so a figure that was reached by breaking a rule doesn't count.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_salus.backend.core.config import Config
from jupyter_salus.simulate.exclusive import run_exclusive
from jupyter_salus.simulate.log import Log
from jupyter_salus.simulate.machine import Machine
from jupyter_salus.simulate.model import DeviceModel
from jupyter_salus.simulate.profiles import read_profiles
from jupyter_salus.simulate.report import Report
from jupyter_salus.simulate.settings import Settings
from jupyter_salus.simulate.table import MIB
from jupyter_salus.simulate.trace import read_history, read_trace
from tests.simulate.log_checker import Books, Facts, check_log

CASES = Path(__file__).resolve().parent.parent / "tests" / "cases"
TRACE_COLUMNS = ("job_id", "model_name", "iterations", "submit_time", "duration", "priority", "growth_mib")
PROFILE_COLUMNS = ("model", "batch", "persistent_mib", "ephemeral_mib", "iteration_ms", "startup_s", "gpu_share")
CAPACITY_MIB = 14_336
POLICIES = ("fair", "fifo", "pack", "srtf", "priority")


@dataclass(frozen=True)
class Figure:
    """One number with what it must be."""

    name: str
    value: float
    target: float
    #: Whether more is better.
    at_least: bool = True

    @property
    def reached(self) -> bool:
        return self.value >= self.target if self.at_least else self.value <= self.target


@dataclass
class Bench:
    """Runs traces out of one directory and checks every log."""

    directory: Path
    config: Config = field(default_factory=Config)
    checked: bool = True
    runs: int = 0

    def trace(self, name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
        """A trace file of these rows; what a row leaves out has its usual value."""
        usual = {"submit_time": 0, "iterations": 500, "priority": "normal", "growth_mib": 0, "duration": 0}
        return self._write(name, TRACE_COLUMNS, [{"job_id": number, **usual, **row} for number, row in enumerate(rows)])

    def profiles(self, name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
        """A profiles file of these rows."""
        return self._write(name, PROFILE_COLUMNS, [{"batch": 1, "startup_s": 0, "gpu_share": 1, **row} for row in rows])

    def _write(self, name: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Path:
        path = self.directory / f"{name}.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        return path

    def exclusive(self, trace: Path, profiles: Path, capacity_mib: float = CAPACITY_MIB) -> Report:
        """One job at a time."""
        jobs = read_trace(trace, read_profiles(profiles))
        return run_exclusive(jobs, DeviceModel(round(capacity_mib * MIB)), Log(None)).report()

    def play(
        self,
        trace: Path,
        profiles: Path,
        policy: str,
        capacity_mib: float = CAPACITY_MIB,
        *,
        knowledge: str = "progress",
        memory: str = "known",
        history: Path | None = None,
        interference: float = 0.0,
        devices: int = 1,
        config: Config | None = None,
    ) -> tuple[Report, Books | None]:
        """One run over the core, its figures, and what the checker made of its log."""
        jobs = read_trace(trace, read_profiles(profiles))
        settings = Settings(
            policy=policy,
            model=DeviceModel(round(capacity_mib * MIB), interference=interference),
            knowledge=knowledge,
            memory=memory,
            history={} if history is None else read_history(history),
            devices=devices,
            core=self.config if config is None else config,
        )
        self.runs += 1
        if not self.checked:
            return Machine(jobs, settings, Log(None)).run().report(), None
        path = self.directory / f"run{self.runs}.log"
        with path.open("w") as stream:
            report = Machine(jobs, settings, Log(stream)).run().report()
        facts = Facts.read(trace, profiles, capacity_mib, interference=interference, learned_memory=memory == "learned")
        books = check_log(path, facts)
        path.unlink()
        if abs(books.makespan_s - report.makespan_s) > 1e-3 or books.finished != report.jobs_finished:
            raise AssertionError(f"the log tells {books.makespan_s} s, {books.finished} jobs; the report {report}")
        return report, books


Rows = Iterator[Figure]


# ---- the trace ---------------------------------------------------------------------------------------------------------

TRACE, WORKLOADS, SHARES = CASES / "trace100.csv", CASES / "workloads.csv", CASES / "shares.csv"
TRACE_CAPACITY_MIB = 15_360


def trace_srtf(bench: Bench) -> Rows:
    """100 jobs under `srtf`, with less and less known of their lengths."""
    alone = bench.exclusive(TRACE, WORKLOADS, TRACE_CAPACITY_MIB)
    with TRACE.open() as file:
        kept = [(row["model_name"], row["duration"]) for row in csv.DictReader(file)]
    history = bench.directory / "history.csv"
    history.write_text("model_name,duration_s\n" + "".join(f"{name},{duration}\n" for name, duration in kept))
    for label, target, knowledge, file_of in (
        ("declared", 3.53, "declared", None),
        ("progress", 3.50, "progress", None),
        ("none", 1.70, "none", None),
        ("none, history", 2.10, "none", history),
    ):
        report, _ = bench.play(TRACE, WORKLOADS, "srtf", TRACE_CAPACITY_MIB, knowledge=knowledge, history=file_of)
        yield Figure(f"{label}: average better by", value(alone.jct_avg_s) / value(report.jct_avg_s), target)
        if label == "none":
            yield Figure("none: moves a job", report.moves / 100, 20, at_least=False)
        yield Figure(
            f"{label}: longest wait", report.wait_max_s, wait_bound(bench.config.max_wait_s, 100), at_least=False
        )


def trace_others(bench: Bench) -> Rows:
    """The same under the other policies."""
    alone = bench.exclusive(TRACE, WORKLOADS, TRACE_CAPACITY_MIB)
    pack, _ = bench.play(TRACE, WORKLOADS, "pack", TRACE_CAPACITY_MIB)
    yield Figure("pack: makespan by exclusive's", pack.makespan_s / alone.makespan_s, 1.005, at_least=False)
    fair, _ = bench.play(TRACE, WORKLOADS, "fair", TRACE_CAPACITY_MIB)
    srtf, _ = bench.play(TRACE, WORKLOADS, "srtf", TRACE_CAPACITY_MIB)
    fifo, _ = bench.play(TRACE, WORKLOADS, "fifo", TRACE_CAPACITY_MIB)
    priority, _ = bench.play(TRACE, WORKLOADS, "priority", TRACE_CAPACITY_MIB)
    yield Figure("fair: average by exclusive's", value(fair.jct_avg_s) / value(alone.jct_avg_s), 1.0, at_least=False)
    yield Figure("fair: average by srtf's", value(fair.jct_avg_s) / value(srtf.jct_avg_s), 1.0)
    for name, report in (("pack", pack), ("fair", fair), ("fifo", fifo)):
        yield Figure(
            f"{name}: longest wait", report.wait_max_s, wait_bound(bench.config.max_wait_s, 100), at_least=False
        )
    bound = wait_bound(bench.config.max_wait_priority_s, 100)
    yield Figure("priority: longest wait", priority.wait_max_s, bound, at_least=False)


def trace_shares(bench: Bench) -> Rows:
    """The same where jobs leave part of the device unused."""
    alone = bench.exclusive(TRACE, SHARES, TRACE_CAPACITY_MIB)
    pack, _ = bench.play(TRACE, SHARES, "pack", TRACE_CAPACITY_MIB)
    srtf, _ = bench.play(TRACE, SHARES, "srtf", TRACE_CAPACITY_MIB)
    yield Figure("pack: makespan by exclusive's", pack.makespan_s / alone.makespan_s, 0.86, at_least=False)
    yield Figure("srtf: average better by", value(alone.jct_avg_s) / value(srtf.jct_avg_s), 4.2)


def wait_bound(max_wait_s: float, sessions: int) -> float:
    """`max_wait`, the iteration in flight, and for each session that is due before: an iteration, its hand-over, two moves."""
    iteration_s, handover_s, move_s = 1.037, 0.001, 0.012 + 0.9 / 40
    return max_wait_s + iteration_s + (sessions - 1) * (iteration_s + handover_s + 2 * move_s)


# ---- many residents ----------------------------------------------------------------------------------------------------


def inference_orders() -> dict[str, Callable[[list[str]], list[str]]]:
    """Orders of arrival: as listed three times, each three in a row, backwards, and one shuffled by a fixed rule."""
    return {
        "as listed": lambda names: names * 3,
        "in threes": lambda names: [name for name in names for _ in range(3)],
        "backwards": lambda names: (names * 3)[::-1],
        "shuffled": lambda names: (
            sorted(names * 3, key=lambda name: name[::-1])[::2] + sorted(names * 3, key=lambda name: name[::-1])[1::2]
        ),
    }


def inference(
    bench: Bench,
    policies: Sequence[str] = POLICIES,
    orders: Sequence[str] | None = None,
    shares: Sequence[float] = (1.0, 0.5, 0.3),
) -> Rows:
    """42 inference jobs, three of each model: all of them have a place, whoever comes first."""
    with (CASES / "inference.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = [f"{row['model']}_{row['batch']}" for row in rows]
    for order, arrange in inference_orders().items():
        if orders is not None and order not in orders:
            continue
        trace = bench.trace("inference-trace", [{"model_name": name} for name in arrange(names)])
        for share in shares:
            profiles = bench.profiles("inference-profiles", [{**row, "gpu_share": share} for row in rows])
            alone = bench.exclusive(trace, profiles)
            for policy in policies:
                report, _ = bench.play(trace, profiles, policy)
                label = f"{policy}, share {share}, {order}"
                yield Figure(f"{label}: residents", report.max_resident_sessions, 42)
                if share < 1.0:
                    yield Figure(f"{label}: faster by", alone.makespan_s / report.makespan_s, 1.9)


def small_jobs(
    bench: Bench,
    policies: Sequence[str] = ("pack", "fifo", "fair"),
    shares: Sequence[float] = (0.33, 0.42, 0.93),
    count: int = 300,
    iterations: int = 500,
) -> Rows:
    """300 equal small jobs: how many run side by side is decided by what pays."""
    trace = bench.trace("small-trace", [{"model_name": "small_1", "iterations": iterations}] * count)
    targets = {0.33: (2.9, 0.0), 0.42: (2.3, 0.0), 0.93: (1.05, 0.99)}
    for share in shares:
        row = {"model": "small", "persistent_mib": 60, "ephemeral_mib": 990, "iteration_ms": 80, "gpu_share": share}
        profiles = bench.profiles("small-profiles", [row])
        alone = bench.exclusive(trace, profiles)
        for policy in policies:
            for interference, target in zip((0.0, 0.1), targets[share], strict=True):
                if not target:
                    continue
                report, _ = bench.play(trace, profiles, policy, interference=interference)
                label = f"{policy}, share {share}" + (f", interference {interference}" if interference else "")
                yield Figure(f"{label}: faster by", alone.makespan_s / report.makespan_s, target)


# ---- nobody starves ----------------------------------------------------------------------------------------------------


def priorities(bench: Bench) -> Rows:
    """Short high-priority jobs that leave hardly a gap on the device, with one low and one normal job behind them."""
    profiles = WORKLOADS
    stream: list[dict[str, Any]] = [
        {
            "job_id": f"high{number}",
            "model_name": "alexnet_25",
            "iterations": 200,
            "submit_time": 4.3 * number,
            "priority": "high",
        }
        for number in range(150)
    ]
    others: list[dict[str, Any]] = [
        {"job_id": name, "model_name": "inception3_50", "iterations": 200, "submit_time": 1.0, "priority": name}
        for name in ("low", "normal")
    ]
    alone = bench.trace("priority-high", stream)
    both = bench.trace("priority-both", stream + others)
    undisturbed, _ = bench.play(alone, profiles, "priority")
    jobs = read_trace(both, read_profiles(profiles))
    machine = Machine(jobs, Settings("priority", DeviceModel(CAPACITY_MIB * MIB), core=bench.config), Log(None))
    machine.run()
    bound = bench.config.max_wait_priority_s + 0.362 + 2 * (0.362 + 0.001 + 2 * 0.03)
    for name in ("low", "normal"):
        guest = machine.guests[name]
        first = value(guest.first_turn_at) - guest.job.submit_s
        yield Figure(f"{name}: first turn after", first, bound, at_least=False)
    ends = sorted(
        value(guest.finished_at) - guest.job.submit_s
        for guest in machine.guests.values()
        if guest.job.priority == "high"
    )
    p95 = ends[int(0.95 * len(ends))]
    yield Figure("high: p95 by undisturbed", p95 / value(undisturbed.jct_p95_s), 1.15, at_least=False)
    bench.play(both, profiles, "priority")


def big_waiter(bench: Bench) -> Rows:
    """A waiter that needs nearly the whole device in a lane doesn't keep 200 small jobs from running side by side."""
    rows = [
        {"model": "small", "persistent_mib": 60, "ephemeral_mib": 990, "iteration_ms": 80, "gpu_share": 0.3},
        {"model": "big", "persistent_mib": 300, "ephemeral_mib": 13_500, "iteration_ms": 400},
    ]
    profiles = bench.profiles("waiter-profiles", rows)
    jobs = [{"model_name": "big_1"}] + [{"model_name": "small_1"}] * 200
    trace = bench.trace("waiter-trace", jobs)
    srtf, _ = bench.play(trace, profiles, "srtf")
    pack, _ = bench.play(trace, profiles, "pack")
    yield Figure("srtf: makespan by pack's", srtf.makespan_s / pack.makespan_s, 1.1, at_least=False)


def growth(bench: Bench, policies: Sequence[str] = POLICIES) -> Rows:
    """Two jobs that grow until neither can go on: one goes out, both finish."""
    row = {"model": "growing", "persistent_mib": 1024, "ephemeral_mib": 6 * 1024, "iteration_ms": 200}
    profiles = bench.profiles("growth-profiles", [row])
    trace = bench.trace("growth-trace", [{"model_name": "growing_1", "growth_mib": 2048, "iterations": 50}] * 2)
    for policy in policies:
        report, _ = bench.play(trace, profiles, policy, 12 * 1024, memory="learned")
        yield Figure(f"{policy}: finished", report.jobs_finished, 2)


def value(number: float | None) -> float:
    """A figure that is there."""
    assert number is not None
    return number


ROWS: dict[str, Callable[[Bench], Rows]] = {
    "trace, srtf": trace_srtf,
    "trace, other policies": trace_others,
    "trace, shares": trace_shares,
    "inference": inference,
    "300 small jobs": small_jobs,
    "priorities": priorities,
    "big waiter": big_waiter,
    "growth": growth,
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--row", choices=list(ROWS), nargs="+", default=list(ROWS))
    parser.add_argument("--unchecked", action="store_true", help="don't check the logs (three times as fast)")
    parser.add_argument("--missed", action="store_true", help="print only what is missed")
    options = parser.parse_args(argv)
    missed = 0
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), checked=not options.unchecked)
        for name in options.row:
            began = time.perf_counter()
            for figure in ROWS[name](bench):
                missed += not figure.reached
                if figure.reached and options.missed:
                    continue
                sign = "≥" if figure.at_least else "≤"
                print(
                    f"{name:<22} {figure.name:<58} {figure.value:>10.3f}  {sign} {figure.target:<8.5g}"
                    + ("" if figure.reached else "  MISSED"),
                    flush=True,
                )
            print(f"{name:<22} took {time.perf_counter() - began:.1f} s", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
