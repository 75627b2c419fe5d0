"""What a machine or a program may have that limits what can be done with its GPU, and what is done then: the table of `doctor`.

The reference page has all rows; `doctor` says those that it finds on the machine. What a program does by itself, such as managed
memory, is found while it runs and told in its session's row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..backend.devices.choice import mps_runs

#: What the columns are about, in the order of `Limit.works`.
PARTS = ("gate", "blocks", "contexts", "moves", "figures")


@dataclass(frozen=True, slots=True)
class Limit:
    """`works`: for each of `PARTS` a word or two, those of `_ALL` where the limit changes nothing; `then`: what that means."""

    name: str
    works: tuple[str, str, str, str, str]
    then: str

    @property
    def changes(self) -> str:
        """The parts for which it makes a difference, in words."""
        rows = zip(PARTS, self.works, _ALL, strict=True)
        return ", ".join(f"{part}: {how}" for part, how, usual in rows if how != usual) or "nothing"


_ALL = ("works", "work", "stay", "work", "work")
_NONE = ("–", "–", "–", "–", "–")
LIMITS = {
    "driver": Limit("no driver", _NONE, "the host device governs RAM and compute turns, and moves nothing"),
    "any": Limit(
        "any driver", _ALL, "what a framework allocated moves; the context of an idle kernel stays on the GPU"
    ),
    "virtual": Limit(
        "a driver without virtual memory",
        ("works", "no", "stay", "no", "work"),
        "the guard leaves its memory alone: sessions take turns, nothing moves",
    ),
    "mig": Limit(
        "MIG", ("no", "no", "stay", "no", "work"), "the GPU isn't governed: its instances are devices of their own"
    ),
    "mode": Limit(
        "a compute mode for one process or none",
        ("no", "no", "stay", "no", "work"),
        "the GPU isn't governed; `nvidia-smi -c DEFAULT` lets several processes in",
    ),
    "mps": Limit(
        "MPS",
        ("works", "work", "one for all", "work", "of all together"),
        "clients share one context: one that fails ends all of them; not tried",
    ),
    "wsl": Limit("WSL", ("works", "work", "stay", "work", "totals only"), "not tried"),
    "guard": Limit(
        "no guard (no compiler, a static program, another preload in its place)",
        ("no", "no", "stay", "no", "work"),
        "the session is plain: turns at boundaries only, its memory is seen and not moved",
    ),
    "ipc": Limit(
        "memory shared with another process (CUDA IPC), managed memory, arrays, graphics",
        ("works", "work", "stay", "no", "work"),
        "nothing of that process is moved any more; it takes turns as before",
    ),
}


def on_this_machine(root: Path = Path("/")) -> Iterator[Limit]:
    """The rows that hold here, where there is a driver. GPUs that can't be shared are told with the GPU. `root` is for tests."""
    if mps_runs(root / "proc"):
        yield LIMITS["mps"]
    try:
        release = (root / "proc/sys/kernel/osrelease").read_text("ascii", "replace").lower()
    except OSError:
        return  # no Linux, or no /proc: told with the processes
    if "microsoft" in release:
        yield LIMITS["wsl"]
