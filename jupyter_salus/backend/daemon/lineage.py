"""Whose child a process is, as far as the system tells: by parents, and by the session of processes that a kernel leads."""

from __future__ import annotations

import os
from pathlib import Path

from ..devices import processes
from .plain import plain

#: The name of the guard's library, as it stands in the maps of a process that it was preloaded into.
_LIBRARY = b"libsalus_guard"


def belongs(pid: int, root: int) -> bool:
    """Whether a process is `root`, descends from it, or was left behind in the session of processes that it leads."""
    if pid == root:
        return True
    seen = {pid}
    parent = processes.parent(pid)
    while parent is not None and parent > 1 and parent not in seen:
        if parent == root:
            return True
        seen.add(parent)
        parent = processes.parent(parent)
    try:
        return os.getsid(pid) == root
    except OSError:
        return False


def has_guard(pid: int) -> bool | None:
    """Whether the guard's library was preloaded into a process; None where its maps aren't ours to read."""
    try:
        return _LIBRARY in (processes.PROC / str(pid) / "maps").read_bytes()
    except OSError:
        return None


def title(pid: int) -> str:
    """What a process runs, in short, for people."""
    try:
        words = (processes.PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        words = []
    names = [Path(word.decode("utf-8", "replace")).name for word in words[:2] if word and not word.startswith(b"-")]
    return plain(f"{' '.join(names) or 'a process'} ({pid})"[:80])
