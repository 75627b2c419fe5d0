"""Whether a back-edge that was hit is a place where the thread may wait."""

from __future__ import annotations

import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from ..session import Session

#: Room on the stack that the guest's own calls need, in frames. Nearer to the limit a boundary is passed by.
ROOM = 40
#: How long a measured loop (`%timeit`, `%prun`) may compute without a turn before it is asked for all the same, in seconds.
PATIENCE_S = 10.0
_PROFILERS = ("cProfile.py", "profile.py", "line_profiler.py")


def may_wait(frame: Optional[FrameType], session: Session) -> bool:
    """Whether a thread that is at `frame` may wait for a turn here.

    Not while it imports, not within `ROOM` of the recursion limit, and inside `%timeit` and `%prun` only once the
    revocation's deadline has passed, since the wait would be measured.
    """
    limit = sys.getrecursionlimit() - ROOM
    depth, measured = 0, False
    while frame is not None:
        depth += 1
        name = frame.f_code.co_filename
        if name == "<frozen importlib._bootstrap>":
            return False
        if name in ("<magic-timeit>", "<timeit-src>") or name.endswith(_PROFILERS):
            measured = True
        frame = frame.f_back
    if depth > limit:
        return False
    return not measured or _out_of_patience(session)


def _out_of_patience(session: Session) -> bool:
    if session.turn.revoked:
        return time.time() >= session.turn.deadline
    cells = list(session.cells.open.values())
    return any(time.monotonic() - cell.began >= PATIENCE_S for cell in cells)
