"""One job at a time, first come first served: what a device does that isn't shared. The core has no part in it."""

from __future__ import annotations

from collections.abc import Sequence

from .log import Log
from .model import DeviceModel
from .report import Tally
from .trace import Job

LANE = "gpu0/exclusive"
DEVICE = "gpu0"


def run_exclusive(jobs: Sequence[Job], model: DeviceModel, log: Log, *, startup: bool = False) -> Tally:
    """Run the jobs one after another. No hand-over costs anything here: the figures others are compared with are the best ones.

    With `startup` a job's start-up runs from its arrival, beside the jobs before it.
    """
    tally = Tally(model.capacity_bytes)
    free_at = 0.0
    arrivals = list(jobs)
    for position, job in enumerate(arrivals):
        need = job.workload.persistent_bytes + job.workload.ephemeral_bytes
        tally.arrived(job.submit_s)
        if need > model.capacity_bytes:
            tally.refused.append(job.job_id)
            continue
        ready = job.submit_s + (job.workload.startup_s if startup else 0.0)
        begin = max(free_at, ready)
        end = begin + job.work_s
        tally.waited(begin - ready)
        tally.finished(end, end - job.submit_s, begin - job.submit_s)
        tally.resident_max = tally.lanes_max = 1
        tally.committed_max_bytes = max(tally.committed_max_bytes, need)
        tally.switches += int(position > 0)
        free_at = end
    if log.wanted:
        _write(arrivals, model, log, startup)
    return tally


def _write(jobs: Sequence[Job], model: DeviceModel, log: Log, startup: bool) -> None:
    """The log of such a run: each job's lines are known beforehand, only their order in time is to be made."""
    lines: list[tuple[float, str, Job]] = []
    free_at = 0.0
    for job in jobs:
        lines.append((job.submit_s, "arrive", job))
        if job.workload.persistent_bytes + job.workload.ephemeral_bytes > model.capacity_bytes:
            lines.append((job.submit_s, "refuse", job))
            continue
        begin = max(free_at, job.submit_s + (job.workload.startup_s if startup else 0.0))
        free_at = begin + job.work_s
        lines += [(begin, event, job) for event in ("resident", "lane_size", "member", "run")]
        lines += [(begin + done * job.workload.iteration_s, "iteration", job) for done in range(1, job.iterations)]
        lines += [(free_at, event, job) for event in ("iteration", "stop", "finish")]
    # Python's sort keeps equal times in the order above, in which a job ends before the next one gets its room.
    for time_s, event, job in sorted(lines, key=lambda line: line[0]):
        placed = event not in ("arrive", "refuse", "finish")
        log.write(
            time_s,
            event,
            job=None if event == "lane_size" else job.job_id,
            device=DEVICE,
            lane=LANE if placed and event != "resident" else None,
            persistent_bytes=None if event == "lane_size" else job.workload.persistent_bytes,
            ephemeral_bytes=0 if event == "stop" else job.workload.ephemeral_bytes,
        )
