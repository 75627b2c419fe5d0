"""How much CPU a thread of the user wanted, and how much of it just now: what makes a boundary a touch of the host device.

Wanted CPU is the time that the thread ran plus the time that it was ready to run and had no CPU: on a machine with more
to do than CPUs a computing thread is not a sleeping one. Time spent importing isn't counted as the user's work.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from collections import deque
from types import FrameType
from typing import Deque, Optional, Tuple

#: CPU time in user code that a cell may use before it counts as using the device, in seconds.
ALLOWANCE_S = 0.02
#: The span over which "just now" is looked at, in seconds of wall time, and the share of it that is "most".
WINDOW_S, MOST = 0.02, 0.5
#: Computing threads that share one CPU, at most: see `wanted`.
CROWD = 15
#: Marks of earlier use lie at least this far apart, in seconds, so that few of them span the window.
_APART_S = 0.004
#: The file of the frames of a running import.
IMPORTS = "<frozen importlib._bootstrap>"
#: A stack deeper than this isn't searched further for an import that runs.
_DEEP = 400


def wanted(ran_s: float, waited_s: float) -> float:
    """CPU time wanted by who ran for `ran_s` and was ready to run, without a CPU, for `waited_s`.

    A thread that sleeps in a loop is ready for a moment after each sleep, on a loaded machine for longer than it runs
    then: only so much waiting counts as a computing thread would have among its like.
    """
    return ran_s + min(max(waited_s, 0.0), CROWD * ran_s)


def scheduled_s(native_id: int) -> Optional[Tuple[float, float]]:
    """Seconds that this thread of the process ran, and was ready to run without a CPU; None where it isn't told."""
    try:
        with open(f"/proc/self/task/{native_id}/schedstat", "rb", buffering=0) as file:
            ran, waited, _slices = file.read(128).split()
    except (OSError, ValueError):
        return None
    return int(ran) / 1e9, int(waited) / 1e9


def waited_for_cpu_s() -> float:
    """Seconds that the other threads of this process were ready to run and had no CPU, over those that live now."""
    found = 0.0
    own = threading.get_native_id()
    try:
        names = os.listdir("/proc/self/task")
    except OSError:
        return 0.0
    for name in names:
        if name != str(own):
            try:
                with open(f"/proc/self/task/{name}/schedstat", "rb", buffering=0) as file:
                    found += int(file.read(128).split()[1]) / 1e9
            except (OSError, ValueError, IndexError):
                continue  # it has just ended, or the system doesn't tell
    return found


def has_children() -> bool:
    """Whether this process has child processes, which may compute on its behalf."""
    try:
        for name in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{name}/children", "rb", buffering=0) as file:
                if file.read(16).strip():
                    return True
    except OSError:
        return False  # not told: a thread that has just ended, or a system without this file
    return False


class Meter:
    """One thread's use of CPU since the meter was made; sampled by the link's thread and at boundaries.

    Frameworks that compute in threads of their own (`pools`) leave the user's thread asleep meanwhile: the process's
    time counts for it then.
    """

    def __init__(self, ident: int, native_id: Optional[int], now: float) -> None:
        self.ident = ident
        self.native_id = native_id
        self.used_s = 0.0
        self._lock = _thread.allocate_lock()
        # A cell begins with this: no file is read for it.
        own = threading.get_ident() == ident
        self._last = (time.thread_time(), None, time.process_time()) if own else self._read()
        self._imported = False
        self._marks: Deque[Tuple[float, float]] = deque([(now, 0.0)], maxlen=16)

    def _read(self) -> Tuple[float, Optional[float], float]:
        """How long the thread ran and was ready to, and the CPU time of the process."""
        process = time.process_time()
        own = None if self.native_id is None else scheduled_s(self.native_id)
        if own is None or not own[0]:
            own = (time.thread_time() if threading.get_ident() == self.ident else process, 0.0)
        return own[0], own[1], process

    def hungry(self, now: float, frame: Optional[FrameType], pools: bool) -> bool:
        """Whether the thread has used its allowance and computed for most of the last moment.

        `frame` is where the thread is. Nothing is counted between two looks of which one finds it importing.
        """
        if not self._lock.acquire(False):
            return False  # the other sampler is at it, or a signal handler interrupted it
        try:
            read = self._read()
            imports = importing(frame)
            if not imports and not self._imported:
                waited_s = 0.0 if read[1] is None or self._last[1] is None else read[1] - self._last[1]
                used = wanted(max(0.0, read[0] - self._last[0]), waited_s)
                self.used_s += max(used, read[2] - self._last[2]) if pools else used
            self._last, self._imported = read, imports
            enough = self.used_s >= ALLOWANCE_S and not imports and self._mostly_cpu(now)
            if now - self._marks[-1][0] >= _APART_S:
                self._marks.append((now, self.used_s))
            return enough
        finally:
            self._lock.release()

    def _mostly_cpu(self, now: float) -> bool:
        for then, used_then in reversed(self._marks):
            span = now - then
            if span >= WINDOW_S:
                return self.used_s - used_then > MOST * span
        return False


class Sleep:
    """Whether the whole process has wanted no CPU for a while; sampled by the link's thread while a turn is revoked."""

    #: How long, in seconds, and up to which share of it counts as none.
    WHILE_S, NONE = 0.15, 0.05
    #: Looks lie at least this far apart, in seconds: each costs a read for every thread.
    APART_S = 0.03

    def __init__(self) -> None:
        self._since: Optional[Tuple[float, float, float]] = None
        self._looked = 0.0

    def forget(self) -> None:
        """Begin anew."""
        self._since = None

    def lasts(self, now: float) -> bool:
        """Whether nothing has computed since the first call, long enough; the time begins anew with each use of CPU."""
        if now - self._looked < self.APART_S:
            return False
        self._looked = now
        # Less what this thread, the link's, has used itself.
        used, waited = time.process_time() - time.thread_time(), waited_for_cpu_s()
        if self._since is None or not self._quiet(now, used - self._since[1], waited - self._since[2]):
            self._since = (now, used, waited)
            return False
        return now - self._since[0] >= self.WHILE_S and not has_children()

    def _quiet(self, now: float, used: float, waited: float) -> bool:
        none = self.NONE * max(now - (self._since or (now,))[0], self.WHILE_S)
        # The sum of waiting over living threads falls when one ends, which is no sign of sleep.
        return waited >= 0 and wanted(used, waited) <= none


def importing(frame: Optional[FrameType]) -> bool:
    """Whether an import runs somewhere below this frame."""
    for _ in range(_DEEP):
        if frame is None:
            return False
        if frame.f_code.co_filename == IMPORTS:
            return True
        frame = frame.f_back
    return False


def frame_of(ident: int) -> Optional[FrameType]:
    """Where another thread is now."""
    return sys._current_frames().get(ident)
