"""How soon the system runs a thread that something woke: the length of its slice.

On Linux 6.12 and later a thread of the usual policy may ask for a slice of its own, without any right. It gets no more of
the CPU by that, but what it gets comes in shorter pieces, and sooner: when it wakes on a busy CPU it goes before those with
longer slices, which it would else wait out (up to 4 ms were seen, a tick). A turn passes through three threads that sleep
until they are woken: the backend's loop, the guest's link, the thread that waits. Elsewhere nothing is asked, and nothing
changes.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import Any, Optional, Tuple

#: What is asked for, in nanoseconds; the system takes nothing shorter. Each of the three is busy for less.
SHORT_NS = 100_000
#: The system's `struct sched_attr`: size, policy, flags, nice, priority, runtime, deadline, period, two clamps.
_ATTRIBUTES = struct.Struct("=IIQiIQQQII")
_POLICY, _RUNTIME = 1, 5
#: SCHED_OTHER and SCHED_BATCH.
_USUAL = (0, 3)
#: The numbers of `sched_setattr` and `sched_getattr`, by machine: the C library has no functions for them.
_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}


def _system(platform: str, machine: str) -> Optional[Tuple[Any, int, int]]:
    """The C library's `syscall` and the numbers of the two; None where they aren't known.

    Called without letting go of the interpreter's lock: another thread might keep it for longer than all this is worth.
    """
    if not platform.startswith("linux") or machine not in _CALLS or struct.calcsize("P") != 8:
        return None
    return (ctypes.PyDLL(None).syscall, *_CALLS[machine])


_CALL = _system(sys.platform, os.uname().machine if hasattr(os, "uname") else "")


def be_prompt() -> Optional[bytes]:
    """Ask for a short slice for the calling thread. Returns what `be_as_before` takes, None if nothing was changed."""
    if _CALL is None:
        return None
    syscall, set_number, get_number = _CALL
    before = ctypes.create_string_buffer(_ATTRIBUTES.size)
    if syscall(get_number, 0, before, _ATTRIBUTES.size, 0) != 0:
        return None  # forbidden in this container
    values = list(_ATTRIBUTES.unpack(before.raw))
    # An older system tells of no slice. One that is short already, or another policy, is somebody's choice.
    if values[_POLICY] not in _USUAL or values[_RUNTIME] <= SHORT_NS:
        return None
    values[_RUNTIME] = SHORT_NS
    return before.raw if syscall(set_number, 0, _ATTRIBUTES.pack(*values), 0) == 0 else None


def be_as_before(before: Optional[bytes]) -> None:
    """Take back what `be_prompt` asked for, in the same thread."""
    if before is not None and _CALL is not None:
        syscall, set_number, _ = _CALL
        syscall(set_number, 0, before, 0)
