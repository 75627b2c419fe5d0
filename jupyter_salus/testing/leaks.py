"""What a test left behind: descriptors, threads, child processes. Linux, by /proc."""

from __future__ import annotations

import gc
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

#: Descriptors that a process may keep: what the interpreter and pytest open for themselves isn't among them.
_WATCHED = ("socket:", "pipe:", "/memfd:", "anon_inode:[pidfd]", "anon_inode:[eventpoll]", "anon_inode:[eventfd]")


@dataclass(frozen=True, slots=True)
class Holdings:
    """What this process holds at one moment."""

    descriptors: frozenset[tuple[int, str]]
    threads: frozenset[int]
    children: frozenset[int]

    def beyond(self, before: Holdings) -> list[str]:
        """What is held on top of `before`, in words."""
        left = [f"descriptor {number} ({target})" for number, target in sorted(self.descriptors - before.descriptors)]
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        left += [f"thread {names.get(ident, ident)}" for ident in sorted(self.threads - before.threads)]
        left += [f"process {pid} ({_command(pid)})" for pid in sorted(self.children - before.children)]
        return left


def holdings() -> Holdings:
    """What this process holds now. Daemon threads and zombies count: their owners should have ended them."""
    gc.collect()
    threads = frozenset(thread.ident for thread in threading.enumerate() if thread.ident is not None)
    return Holdings(frozenset(_descriptors()), threads, frozenset(_children()))


def left_behind(before: Holdings, patience_s: float = 20.0) -> list[str]:
    """What is held beyond `before` and doesn't go within `patience_s` seconds."""
    deadline = time.monotonic() + patience_s
    while True:
        left = holdings().beyond(before)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def _descriptors() -> list[tuple[int, str]]:
    found = []
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue  # the listing's own descriptor
        if target.startswith(_WATCHED):
            found.append((int(entry), target))
    return found


def _children() -> list[int]:
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        try:
            found += [int(pid) for pid in Path(f"/proc/self/task/{thread}/children").read_text().split()]
        except OSError:
            continue  # it has ended, or this kernel keeps no lists
    return found


def _command(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            or "zombie"
        )
    except OSError:
        return "gone"
