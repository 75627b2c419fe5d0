"""How much memory this machine lets us have: its own total, or what a control group allows, whichever is less."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
#: A limit above this is the kernel's way of saying that there is none.
_NO_LIMIT = 2**60


@dataclass(frozen=True, slots=True)
class Memory:
    """`total_bytes` and how much of it is used and can't be given up at once. `source`: which limit it is."""

    total_bytes: int
    used_bytes: int
    source: str


def memory() -> Memory:
    """The tightest of the machine and the control groups that this process is in."""
    return min([_machine(), *_groups()], key=lambda found: found.total_bytes)


def _machine() -> Memory:
    try:
        fields = dict(line.split(":", 1) for line in (ROOT / "proc/meminfo").read_text().splitlines())
        total = int(fields["MemTotal"].split()[0]) * 1024
        return Memory(total, total - int(fields["MemAvailable"].split()[0]) * 1024, "machine")
    except (OSError, KeyError, ValueError):
        # No /proc (macOS): the total is known, what others use isn't.
        return Memory(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), 0, "machine")


def _groups() -> list[Memory]:
    try:
        lines = (ROOT / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[Memory] = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            found += _limits(ROOT / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mount = ROOT / "sys/fs/cgroup/memory"
            found += _limits(mount, path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    return found


def _limits(mount: Path, path: str, limit: str, usage: str, cache: str) -> list[Memory]:
    """The limits of a group and those above it. In a container the path may name a place that isn't mounted here: the
    mount's root is the container's own group then, and is looked at in any case."""
    found: list[Memory] = []
    group = mount / path.lstrip("/")
    for place in [group, *group.parents]:
        if place != mount and mount not in place.parents:
            break
        try:
            total = int((place / limit).read_text())
            used = int((place / usage).read_text())
            stat = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue  # "max", or not a group that counts memory
        if 0 < total < _NO_LIMIT:
            found.append(Memory(total, max(0, used - int(stat.get(cache, 0))), f"control group {place}"))
    return found
