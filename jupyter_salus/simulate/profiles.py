"""Workload profiles: what one iteration of a model with one batch size needs of a device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .table import read_rows

COLUMNS = ("model", "batch", "persistent_mib", "ephemeral_mib", "iteration_ms", "startup_s")


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of a profiles file: the truth about a job, which the core only meets through its guest's events."""

    name: str
    persistent_bytes: int
    ephemeral_bytes: int
    #: Seconds of an iteration that runs alone.
    iteration_s: float
    #: Host work before the first touch of the device.
    startup_s: float
    #: Share of the device that the job uses while it runs alone, above 0 and up to 1.
    gpu_share: float


def read_profiles(path: Path) -> dict[str, Workload]:
    """The workloads of the file at `path` by `model_batch`. Raises `MalformedFile`."""
    workloads: dict[str, Workload] = {}
    for row in read_rows(path, COLUMNS):
        name = f"{row.text('model')}_{row.text('batch')}"
        if name in workloads:
            raise row.fail("batch", f"'{name}' is there twice")
        workloads[name] = Workload(
            name=name,
            persistent_bytes=row.mib("persistent_mib"),
            ephemeral_bytes=row.mib("ephemeral_mib"),
            iteration_s=row.number("iteration_ms", above=0.0) / 1000,
            startup_s=row.number("startup_s"),
            gpu_share=row.number("gpu_share", above=0.0, most=1.0) if row.has("gpu_share") else 1.0,
        )
    return workloads
