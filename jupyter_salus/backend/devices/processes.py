"""Processes and their resident memory, as /proc tells. Where there is no /proc, nothing is known (None)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie: a zombie has given its memory back."""
    state = _stat(pid)
    return state is not None and state[0] not in "ZX"


def parent(pid: int) -> int | None:
    """The process that it is a child of; None if it is gone."""
    state = _stat(pid)
    return state[1] if state is not None else None


def resident_bytes(pid: int) -> int | None:
    """Resident memory of one process; None if it is gone."""
    try:
        fields = (PROC / str(pid) / "statm").read_bytes().split()
        return int(fields[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return None


def private_bytes(pid: int) -> int | None:
    """Resident memory that no other process shares: what a forked child holds on top of its parent.

    Where the rollup isn't ours to read, resident memory less what may be shared with files. None if the process is gone.
    """
    try:
        rollup = (PROC / str(pid) / "smaps_rollup").read_bytes()
    except OSError:
        return _unshared_bytes(pid)
    kilobytes = 0
    for line in rollup.splitlines():
        if line.startswith((b"Private_Clean:", b"Private_Dirty:", b"Private_Hugetlb:")):
            kilobytes += int(line.split()[1])
    return kilobytes * 1024


def descendants(pid: int, apart: Collection[int] = ()) -> list[int]:
    """The children of a process and theirs, without those in `apart` and what is below them."""
    by_parent = None if _kernel_lists_children() else _children_by_parent()
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for child in _children_of(parent) if by_parent is None else by_parent.get(parent, []):
            if child not in apart and child not in found and child != pid:
                found.append(child)
                waiting.append(child)
    return found


def _unshared_bytes(pid: int) -> int | None:
    try:
        fields = (PROC / str(pid) / "statm").read_bytes().split()
        return max(0, int(fields[1]) - int(fields[2])) * _PAGE_BYTES
    except (OSError, IndexError):
        return None


def _kernel_lists_children() -> bool:
    return (PROC / "self" / "task" / str(os.getpid()) / "children").exists()


def _children_of(pid: int) -> list[int]:
    """By the kernel's own lists, one per thread; none if the process is gone."""
    found: list[int] = []
    try:
        threads = os.listdir(PROC / str(pid) / "task")
    except OSError:
        return found
    for thread in threads:
        try:
            found += [int(child) for child in (PROC / str(pid) / "task" / thread / "children").read_bytes().split()]
        except OSError:
            continue  # that thread has just ended; its children are another one's now
    return found


def _children_by_parent() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for pid in _pids():
        state = _stat(pid)
        if state is not None:
            children.setdefault(state[1], []).append(pid)
    return children


def _pids() -> Iterator[int]:
    try:
        entries = os.listdir(PROC)
    except OSError:
        return
    for entry in entries:
        if entry.isdigit():
            yield int(entry)


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and parent; the command in front of them may hold anything, so they are read from behind it."""
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
        fields = text[text.rindex(b")") + 2 :].split()
        return fields[0].decode("ascii"), int(fields[1])
    except (OSError, ValueError, IndexError):
        return None
