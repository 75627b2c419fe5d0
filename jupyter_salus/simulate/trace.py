"""The trace: which jobs arrive when, and how much work each one brings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .profiles import Workload
from .table import read_rows

COLUMNS = ("job_id", "model_name", "iterations", "submit_time", "duration")
PRIORITIES = ("high", "normal", "low")


@dataclass(frozen=True, slots=True)
class Job:
    """One row of a trace with its workload."""

    job_id: str
    workload: Workload
    iterations: int
    submit_s: float
    #: What the trace declares as the job's length; not what it takes: that is iterations times the iteration's time.
    declared_s: float
    priority: str
    #: E grows by this many bytes at a time in the first iteration; 0: all of it at once.
    growth_bytes: int

    @property
    def work_s(self) -> float:
        """Seconds of work when it runs alone."""
        return self.iterations * self.workload.iteration_s


def read_trace(path: Path, workloads: dict[str, Workload]) -> list[Job]:
    """The jobs of the file at `path` in order of arrival, ties in the order of rows. Raises `MalformedFile`."""
    jobs: list[Job] = []
    seen: set[str] = set()
    for row in read_rows(path, COLUMNS):
        job_id = row.text("job_id")
        if job_id in seen:
            raise row.fail("job_id", f"'{job_id}' is there twice")
        seen.add(job_id)
        model, _, batch = row.text("model_name").rpartition("_")
        workload = workloads.get(f"{model}_{batch}")
        if not model or workload is None:
            raise row.fail("model_name", f"no profile of '{row.text('model_name')}'")
        if row.has("device_count") and row.whole("device_count", least=1) > 1:
            raise row.fail("device_count", f"{row.text('device_count')} devices, and a simulated job runs on one")
        jobs.append(
            Job(
                job_id=job_id,
                workload=workload,
                iterations=row.whole("iterations", least=1),
                submit_s=row.number("submit_time"),
                declared_s=row.number("duration"),
                priority=row.choice("priority", PRIORITIES) if row.has("priority") else "normal",
                growth_bytes=row.mib("growth_mib") if row.has("growth_mib") else 0,
            )
        )
    return sorted(jobs, key=lambda job: job.submit_s)


def read_history(path: Path) -> dict[str, tuple[float, ...]]:
    """Kept durations in seconds by model name, oldest first. Raises `MalformedFile`."""
    kept: dict[str, tuple[float, ...]] = {}
    for row in read_rows(path, ("model_name", "duration_s")):
        name = row.text("model_name")
        kept[name] = (*kept.get(name, ()), row.number("duration_s"))
    return kept
