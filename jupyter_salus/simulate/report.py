"""What a simulation found: times of the jobs, use of the device, cost of the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The value below which `percent` of the values lie, between neighbours on a straight line; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def mean(values: Sequence[float]) -> float | None:
    """The average; None without values."""
    return sum(values) / len(values) if values else None


@dataclass(slots=True)
class Tally:
    """Counted while a simulation runs; `report` makes the figures of it."""

    capacity_bytes: int
    #: Seconds from arrival to end, of finished jobs in the order in which they finished.
    completions_s: list[float] = field(default_factory=list)
    #: Seconds from arrival to the first turn, of jobs that had one and finished.
    queues_s: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    first_arrival_s: float | None = None
    last_finish_s: float | None = None
    wait_max_s: float = 0.0
    resident_max: int = 0
    lanes_max: int = 0
    committed_max_bytes: int = 0
    switches: int = 0
    evictions: int = 0
    moves: int = 0
    moved_bytes: int = 0
    #: Nanoseconds of processor time of each call of the core's `handle`.
    decisions_ns: list[int] = field(default_factory=list)

    def arrived(self, now: float) -> None:
        if self.first_arrival_s is None:
            self.first_arrival_s = now

    def finished(self, now: float, completion_s: float, queue_s: float) -> None:
        self.completions_s.append(completion_s)
        self.queues_s.append(queue_s)
        self.last_finish_s = now

    def waited(self, seconds: float) -> None:
        self.wait_max_s = max(self.wait_max_s, seconds)

    def report(self) -> Report:
        """The figures as they stand."""
        decisions = sorted(self.decisions_ns)
        p50, p99 = percentile(decisions, 50), percentile(decisions, 99)
        begin, end = self.first_arrival_s, self.last_finish_s
        return Report(
            makespan_s=0.0 if begin is None or end is None else end - begin,
            jct_avg_s=mean(self.completions_s),
            jct_p50_s=percentile(self.completions_s, 50),
            jct_p95_s=percentile(self.completions_s, 95),
            queue_avg_s=mean(self.queues_s),
            wait_max_s=self.wait_max_s,
            jobs_finished=len(self.completions_s),
            jobs_refused=tuple(self.refused),
            max_resident_sessions=self.resident_max,
            max_lanes=self.lanes_max,
            peak_committed_mib=self.committed_max_bytes / 2**20,
            capacity_mib=self.capacity_bytes / 2**20,
            switches=self.switches,
            evictions=self.evictions,
            moves=self.moves,
            moved_mib=self.moved_bytes / 2**20,
            decisions=len(decisions),
            decision_us_p50=None if p50 is None else p50 / 1000,
            decision_us_p99=None if p99 is None else p99 / 1000,
        )


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of one simulation under the names of `--json`. Averages are over finished jobs; None: there are none.

    `makespan_s` counts from the first arrival to the last end.
    """

    makespan_s: float
    jct_avg_s: float | None
    jct_p50_s: float | None
    jct_p95_s: float | None
    queue_avg_s: float | None
    wait_max_s: float
    jobs_finished: int
    jobs_refused: tuple[str, ...]
    max_resident_sessions: int
    max_lanes: int
    peak_committed_mib: float
    capacity_mib: float
    switches: int
    evictions: int
    moves: int
    moved_mib: float
    decisions: int
    decision_us_p50: float | None
    decision_us_p99: float | None

    def as_json(self) -> dict[str, object]:
        figures = asdict(self)
        figures["jobs_refused"] = list(self.jobs_refused)
        return figures

    def as_text(self) -> str:
        """The figures for people, a line each."""
        lines = []
        for name, value in self.as_json().items():
            if isinstance(value, float):
                shown = f"{value:,.3f}".rstrip("0").rstrip(".")
            elif isinstance(value, list):
                shown = ", ".join(map(str, value)) or "none"
            else:
                shown = "none" if value is None else f"{value:,}"
            lines.append(f"{name:<22} {shown:>16}" if not isinstance(value, list) else f"{name:<22} {shown}")
        return "\n".join(lines)
