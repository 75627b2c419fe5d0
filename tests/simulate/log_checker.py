"""Recomputes from a simulation's log whether it kept the rules. Knows nothing of the scheduler or the simulator.

It reads the same trace and profiles as the run, goes through the log's lines, and keeps books of its own: which job is
where, what that needs, how fast everybody goes, how much work is done. What contradicts the rules raises `Violation` with
the line's number. Sizes are in MiB, times in seconds, as in the files.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Relative rounding that is granted to times and work.
ROUNDING = 1e-6


class Violation(Exception):
    """A line of the log that can't be, by the rules."""


@dataclass
class Facts:
    """What a run was made of, read from its own files."""

    capacity_mib: float
    profiles: dict[str, dict[str, float]]
    jobs: dict[str, dict[str, Any]]
    interference: float = 0.0
    move_s: float = 0.012
    move_mib_s: float = 40 * 1024
    switch_s: float = 0.001
    #: P and E are asked for while the job runs; until its first iteration is done they are less than the profile's.
    learned_memory: bool = False

    @classmethod
    def read(cls, trace: Path, profiles: Path, capacity_mib: float, **more: Any) -> Facts:
        with profiles.open() as file:
            rows = {f"{row['model']}_{row['batch']}": row for row in csv.DictReader(file)}
        with trace.open() as file:
            jobs = {row["job_id"]: dict(row) for row in csv.DictReader(file)}
        known = {
            name: {
                "p": float(row["persistent_mib"]),
                "e": float(row["ephemeral_mib"]),
                "iteration_s": float(row["iteration_ms"]) / 1000,
                "share": float(row.get("gpu_share") or 1.0),
            }
            for name, row in rows.items()
        }
        return cls(capacity_mib, known, jobs, **more)


@dataclass
class JobBooks:
    """One job as the log tells it."""

    iterations: int
    submit_s: float
    p: float
    e: float
    iteration_s: float
    share: float
    device: str = ""
    arrived_at: float | None = None
    resident_p: float | None = None
    resident_at: float = 0.0
    lane: str | None = None
    member_e: float = 0.0
    stopped_e: float = 0.0
    running: bool = False
    work: float = 0.0
    counted: int = 0
    evicted: bool = False
    ever_evicted: bool = False
    first_run: float | None = None
    finished_at: float | None = None
    refused: bool = False


@dataclass
class Books:
    """What the log amounts to, once it is checked."""

    makespan_s: float = 0.0
    jct_avg_s: float = 0.0
    finished: int = 0
    refused: list[str] = field(default_factory=list)
    resident_max: int = 0
    lanes_max: int = 0
    committed_max_mib: float = 0.0
    evictions: int = 0
    #: (time, job) of every eviction, at its end.
    evicted: list[tuple[float, str]] = field(default_factory=list)
    lines: int = 0


def check_log(path: Path, facts: Facts) -> Books:
    """Check the whole log at `path`. Returns the figures that it amounts to; raises `Violation`."""
    with path.open() as file:
        return check_lines((json.loads(line) for line in file), facts)


def check_lines(lines: Iterable[dict[str, Any]], facts: Facts) -> Books:
    """The same for lines that are read already."""
    checker = _Checker(facts)
    for line in lines:
        checker.take(line)
    return checker.close()


class _Checker:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.now = 0.0
        self.number = 0
        self.books = Books()
        self.lane_size: dict[str, float] = {}
        self.lane_device: dict[str, str] = {}
        self.members: dict[str, dict[str, JobBooks]] = {}
        self.running: dict[str, dict[str, JobBooks]] = {}
        #: By lane: the job that runs there, or was halted in mid-iteration and still fills its memory.
        self.occupied: dict[str, str] = {}
        #: By lane: who ran in it last, and when that ended.
        self.last_run: dict[str, tuple[str, float]] = {}
        self.resident_p: dict[str, float] = {}
        self.stopped_e: dict[str, float] = {}
        self.first_arrival: float | None = None
        self.residents = 0
        #: Something was placed since the sizes of lanes were last summed up.
        self.placed = False
        self.jobs: dict[str, JobBooks] = {}
        for job_id, row in facts.jobs.items():
            profile = facts.profiles[row["model_name"]]
            self.jobs[job_id] = JobBooks(
                iterations=int(row["iterations"]),
                submit_s=float(row["submit_time"]),
                p=profile["p"],
                e=profile["e"],
                iteration_s=profile["iteration_s"],
                share=profile["share"],
            )

    # ---- lines --------------------------------------------------------------------------------------------------------

    def take(self, line: dict[str, Any]) -> None:
        self.number += 1
        if set(line) != {"t", "event", "job", "device", "lane", "p_mib", "e_mib"}:
            self._fail(f"its fields are {sorted(line)}")
        time_s = line["t"]
        if time_s < self.now:
            self._fail(f"time goes back from {self.now} to {time_s}")
        self._work_until(time_s)
        job = None
        if line["job"] is not None:
            job = self.jobs.get(line["job"])
            if job is None:
                self._fail(f"there is no job {line['job']}")
        event = line["event"]
        known = (
            "arrive",
            "resident",
            "evict",
            "member",
            "park",
            "lane_size",
            "run",
            "stop",
            "iteration",
            "finish",
            "refuse",
        )
        if event not in known:
            self._fail(f"'{event}' is no event")
        if event == "lane_size":
            self._lane_size(line)
        else:
            assert job is not None
            if event != "arrive" and (job.arrived_at is None or job.finished_at is not None or job.refused):
                self._fail(f"{event} of job {line['job']}, which isn't there")
            getattr(self, f"_{event}")(line, job)
        if event not in ("arrive", "iteration", "run", "refuse"):
            self._check_safe(line["device"])
            self.placed = True
        self.books.lines += 1

    def _arrive(self, line: dict[str, Any], job: JobBooks) -> None:
        if job.arrived_at is not None:
            self._fail("it arrives twice")
        if not _close(line["t"], job.submit_s):
            self._fail(f"it arrives at {line['t']} and not at {job.submit_s}")
        job.arrived_at, job.device = line["t"], line["device"]
        if self.first_arrival is None:
            self.first_arrival = line["t"]

    def _refuse(self, line: dict[str, Any], job: JobBooks) -> None:
        if job.p + job.e <= self.facts.capacity_mib:
            self._fail("it is refused, and alone it would fit")
        job.refused = True
        self.books.refused.append(line["job"])

    def _resident(self, line: dict[str, Any], job: JobBooks) -> None:
        size = line["p_mib"]
        if not self.facts.learned_memory and not _close(size, job.p):
            self._fail(f"its P is {size} and not {job.p}")
        before = job.resident_p
        if before is None:
            job.resident_at = line["t"]
            self.residents += 1
            self.books.resident_max = max(self.books.resident_max, self.residents)
        job.resident_p = size
        job.evicted = False
        self.resident_p[job.device] = self.resident_p.get(job.device, 0.0) + size - (before or 0.0)

    def _evict(self, line: dict[str, Any], job: JobBooks) -> None:
        if job.resident_p is None:
            self._fail("it is evicted and isn't resident")
        if job.running:
            self._fail("it is evicted while it runs")
        self._leave(job)
        job.evicted = job.ever_evicted = True
        self.books.evictions += 1
        self.books.evicted.append((line["t"], line["job"]))

    def _leave(self, job: JobBooks) -> None:
        """Off the device, for whatever reason."""
        if job.resident_p is not None:
            self.resident_p[job.device] -= job.resident_p
            self.residents -= 1
        job.resident_p = None
        self._unstop(job)
        if job.lane is not None and self.members[job.lane].get(self.occupied.get(job.lane, "")) is job:
            del self.occupied[job.lane]
        self._leave_lane(job)

    def _unstop(self, job: JobBooks) -> None:
        if job.stopped_e:
            self.stopped_e[job.device] -= job.stopped_e
            job.stopped_e = 0.0

    def _leave_lane(self, job: JobBooks) -> None:
        if job.lane is not None:
            lane, job.lane = job.lane, None
            left = {name: other for name, other in self.members[lane].items() if other is not job}
            self.members[lane] = left
            self._forget(lane)

    def _forget(self, lane: str) -> None:
        """A lane without size and members is no lane any more."""
        if not self.members.get(lane) and not self.lane_size.get(lane):
            self.members.pop(lane, None)
            self.lane_size.pop(lane, None)
            self.lane_device.pop(lane, None)

    def _member(self, line: dict[str, Any], job: JobBooks) -> None:
        need = line["e_mib"]
        if not self.facts.learned_memory and not _close(need, job.e):
            self._fail(f"its E is {need} and not {job.e}")
        if job.lane not in (None, line["lane"]) and self.occupied.get(job.lane or "") == line["job"]:
            self._fail(f"it changes from lane {job.lane} to {line['lane']} in mid-iteration")
        self._unstop(job)  # what it still held counts in its lane now
        self._leave_lane(job)
        job.lane, job.member_e = line["lane"], need
        self.members.setdefault(line["lane"], {})[line["job"]] = job
        self.lane_device[line["lane"]] = line["device"]

    def _park(self, line: dict[str, Any], job: JobBooks) -> None:
        if job.running:
            self._fail("it is parked while it runs")
        if job.lane is not None and self.occupied.get(job.lane) == line["job"]:
            self._fail("it is parked in mid-iteration, and its E isn't told")
        self._leave_lane(job)

    def _lane_size(self, line: dict[str, Any]) -> None:
        self.lane_size[line["lane"]] = line["e_mib"]
        self.lane_device[line["lane"]] = line["device"]
        self.books.lanes_max = max(self.books.lanes_max, len(self.lane_size))
        self._forget(line["lane"])

    def _run(self, line: dict[str, Any], job: JobBooks) -> None:
        lane = line["lane"]
        if job.resident_p is None:
            self._fail("it runs and isn't resident")
        if job.lane != lane:
            self._fail(f"it runs in lane {lane} and is a member of {job.lane}")
        if job.running:
            self._fail("it runs already")
        if self.occupied.get(lane, line["job"]) != line["job"]:
            self._fail(f"job {self.occupied[lane]} is in lane {lane} in mid-iteration")
        self.occupied[lane] = line["job"]
        if job.ever_evicted and line["t"] < job.resident_at + self._move_s(job) - ROUNDING:
            self._fail("it runs before its return can be done")
        last = self.last_run.get(lane)
        if last is not None and last[0] != line["job"] and line["t"] < last[1] + self.facts.switch_s - ROUNDING:
            self._fail(f"it runs without a hand-over from job {last[0]}")
        self._unstop(job)
        job.running = True
        if job.first_run is None:
            job.first_run = line["t"]
        self.running.setdefault(job.device, {})[line["job"]] = job

    def _move_s(self, job: JobBooks) -> float:
        return self.facts.move_s + (job.resident_p or 0.0) / self.facts.move_mib_s

    def _stop(self, line: dict[str, Any], job: JobBooks) -> None:
        lane = job.lane
        if lane is None or self.occupied.get(lane) != line["job"]:
            self._fail("it stops and doesn't run")
        assert lane is not None
        if job.running:
            job.running = False
            del self.running[job.device][line["job"]]
            self.last_run[lane] = (line["job"], line["t"])
        held = line["e_mib"]
        if held:
            job.stopped_e = held
            self.stopped_e[job.device] = self.stopped_e.get(job.device, 0.0) + held
            self._leave_lane(job)
        if held or self._whole(job):
            del self.occupied[lane]

    def _iteration(self, line: dict[str, Any], job: JobBooks) -> None:
        if not job.running:
            self._fail("an iteration ends of a job that doesn't run")
        job.counted += 1
        if abs(job.work - job.counted) > ROUNDING * max(1.0, job.counted) + 1e-9 / job.iteration_s:
            self._fail(f"iteration {job.counted} ends with the work of {job.work} done")
        job.work = float(job.counted)
        if job.counted > job.iterations:
            self._fail(f"it has {job.iterations} iterations")

    def _finish(self, line: dict[str, Any], job: JobBooks) -> None:
        if job.running:
            self._fail("it finishes while it runs")
        if job.counted != job.iterations:
            self._fail(f"it finishes after {job.counted} of {job.iterations} iterations")
        self._leave(job)
        job.finished_at = line["t"]

    # ---- rules --------------------------------------------------------------------------------------------------------

    def _work_until(self, time_s: float) -> None:
        elapsed, self.now = time_s - self.now, time_s
        if elapsed <= 0.0:
            return
        if self.placed:
            self.placed = False
            self._check_sizes()
        for running in self.running.values():
            if not running:
                continue
            total = sum(job.share for job in running.values())
            speed = min(1.0, 1.0 / total)
            if len(running) > 1:
                speed *= 1.0 - self.facts.interference
            for job in running.values():
                job.work += elapsed * speed / job.iteration_s

    def _check_safe(self, device: str) -> None:
        """P of residents, lanes at the largest E of their members, stopped E: within the capacity, at every line."""
        lanes = 0.0
        for lane, where in self.lane_device.items():
            if where != device:
                continue
            largest = max((job.member_e for job in self.members.get(lane, {}).values()), default=0.0)
            size = self.lane_size.get(lane, 0.0)
            if size < largest - ROUNDING:
                self._fail(f"lane {lane} has {size} MiB and a member that needs {largest}")
            lanes += largest
        total = self.resident_p.get(device, 0.0) + lanes + self.stopped_e.get(device, 0.0)
        if total > self.facts.capacity_mib + ROUNDING:
            self._fail(f"{total:.3f} MiB are committed of {self.facts.capacity_mib}")

    def _check_sizes(self) -> None:
        """The same with lanes as large as the log says, once all is told that happened at one time."""
        for device in set(self.lane_device.values()) | set(self.resident_p):
            lanes = sum(self.lane_size.get(lane, 0.0) for lane, where in self.lane_device.items() if where == device)
            total = self.resident_p.get(device, 0.0) + lanes + self.stopped_e.get(device, 0.0)
            self.books.committed_max_mib = max(self.books.committed_max_mib, total)
            if total > self.facts.capacity_mib + ROUNDING:
                self._fail(f"{total:.3f} MiB are committed of {self.facts.capacity_mib} before this line")

    def close(self) -> Books:
        """The end of the log: every job came to its end."""
        for name, job in self.jobs.items():
            if job.finished_at is None and not job.refused:
                self._fail(f"job {name} never finishes")
        done = [job for job in self.jobs.values() if job.finished_at is not None]
        ends = [job.finished_at for job in done if job.finished_at is not None]
        if ends and self.first_arrival is not None:
            self.books.makespan_s = max(ends) - self.first_arrival
            self.books.jct_avg_s = sum(end - job.submit_s for end, job in zip(ends, done, strict=True)) / len(done)
        self.books.finished = len(done)
        return self.books

    def _whole(self, job: JobBooks) -> bool:
        return abs(job.work - job.counted) <= ROUNDING * max(1.0, job.counted) + 1e-9 / job.iteration_s

    def _fail(self, why: str) -> None:
        raise Violation(f"line {self.number}, t {self.now}: {why}")


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= ROUNDING * max(1.0, abs(one), abs(other))


def first_difference(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> float | None:
    """The time of the first line in which two logs differ; None: they are equal.

    Two runs that differ only in what the scheduler can't know may differ only from the time on at which that shows. Times
    may differ by rounding.
    """
    for left, right in zip(one, other, strict=False):
        if left != right and not (_close(left["t"], right["t"]) and {**left, "t": 0} == {**right, "t": 0}):
            return float(min(left["t"], right["t"]))
    if len(one) == len(other):
        return None
    rest = (one if len(one) > len(other) else other)[min(len(one), len(other))]
    return float(rest["t"])


def check_eviction_order(lines: list[dict[str, Any]], facts: Facts, least_rank: float = 0.7) -> float:
    """Under `srtf` waiting jobs go out last first: those with the most work left. Returns their mean rank among the
    resident jobs that don't run, 1 being the most work left; raises `Violation` below `least_rank`.

    A single eviction may be another one (whoever just came back stays, one large job may go instead of two small ones).
    """
    left: dict[str, float] = {}
    resident: set[str] = set()
    running: set[str] = set()
    ranks: list[float] = []
    for line in lines:
        job, event = line["job"], line["event"]
        if event == "arrive":
            row = facts.jobs[job]
            left[job] = int(row["iterations"]) * facts.profiles[row["model_name"]]["iteration_s"]
        elif event == "resident":
            resident.add(job)
        elif event == "run":
            running.add(job)
        elif event == "stop":
            running.discard(job)
        elif event == "iteration":
            left[job] -= facts.profiles[facts.jobs[job]["model_name"]]["iteration_s"]
        elif event in ("evict", "finish"):
            resident.discard(job)
            others = [left[other] for other in resident - running]
            if event == "evict" and len(others) >= 2:
                ranks.append(sum(left[job] >= other for other in others) / len(others))
    if not ranks:
        raise Violation("nobody was evicted, so there is no order to look at")
    mean = sum(ranks) / len(ranks)
    if mean < least_rank:
        raise Violation(f"jobs that were evicted rank at {mean:.2f} of those with the most work left")
    return mean
