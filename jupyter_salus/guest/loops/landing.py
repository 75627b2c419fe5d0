"""Whether a back-edge that was hit is a place where the thread may wait."""

from __future__ import annotations

import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Optional

from ..meter import IMPORTS
from .room import ROOM

if TYPE_CHECKING:
    from ..session import Session

#: A stack deeper than this isn't searched further.
_DEEP = 400
#: How long a measured loop (`%timeit`, `%prun`) may compute without a turn before it is asked for all the same, in seconds.
PATIENCE_S = 10.0
_TIMED = ("<magic-timeit>", "<timeit-src>")
_PROFILERS = ("cProfile.py", "profile.py", "line_profiler.py")


def may_wait(frame: Optional[FrameType], session: Session) -> bool:
    """Whether a thread that is at `frame` may wait for a turn here.

    Not while it imports, not within `ROOM` of the recursion limit, and inside `%timeit` and `%prun` only once the
    revocation's deadline has passed, since the wait would be measured.
    """
    measured = profiled()
    left = sys.getrecursionlimit() - ROOM
    while frame is not None:
        left -= 1
        name = frame.f_code.co_filename
        if left <= 0 or name == IMPORTS:
            return False
        measured = measured or _measures(name)
        frame = frame.f_back
    return not measured or long_enough(session)


def has_room(frame: Optional[FrameType]) -> bool:
    """Whether the guest's own calls fit on the stack above this frame."""
    left = sys.getrecursionlimit() - ROOM
    while frame is not None and left > 0:
        left -= 1
        frame = frame.f_back
    return left > 0


def out_of_patience(frame: Optional[FrameType], session: Session) -> bool:
    """False while the time that passes at this frame is measured by `%timeit` or a profiler and may go on."""
    for _ in range(_DEEP):
        if frame is None:
            return True
        if _measures(frame.f_code.co_filename):
            return long_enough(session)
        frame = frame.f_back
    return True


def profiled() -> bool:
    """Whether a profiler measures this thread, however it was begun."""
    if sys.getprofile() is not None:
        return True
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and monitoring.get_tool(monitoring.PROFILER_ID) == "cProfile"


def _measures(name: str) -> bool:
    return name in _TIMED or name.endswith(_PROFILERS)


def long_enough(session: Session) -> bool:
    """Whether what is measured has computed for so long that a turn passes all the same."""
    if session.turn.revoked:
        return time.time() >= session.turn.deadline
    cells = list(session.cells.open.values())
    return any(time.monotonic() - cell.began >= PATIENCE_S for cell in cells)
