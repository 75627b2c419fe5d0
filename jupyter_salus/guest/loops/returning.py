"""A mark at the return of a call: Python 3.10 and 3.11.

A frame object has room for a trace function of its own. It is used by nobody while nothing is traced, and let go of when
the frame ends; that what is put there then ends, too, marks a signal as arrived, in C alone. So code that a loop of the
user's has called runs at full speed, however long, and the loop's next back-edge is found all the same.
"""

from __future__ import annotations

import _thread
import inspect
import sys
from functools import partial
from types import CodeType, FrameType
from typing import Any, Callable, Optional

#: A stack deeper than this isn't searched further.
_DEEP = 400
#: Frames of these may stop without ending.
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Return:
    """Makes what is put into a frame: `made()` marks the signal `number` when it is let go of."""

    def __init__(self, number: int) -> None:
        # No function of Python's: an interrupt in it would be printed and lost.
        mark: Any = _thread.interrupt_main
        marks = staticmethod(partial(mark, number))
        self.made: Any = type("_Return", (), {"__slots__": (), "__del__": marks, "__call__": _traced})


def _traced(_self: Any, _frame: FrameType, _event: str, _argument: Any) -> None:
    """Called if somebody begins to trace while a frame has this: wants to hear of nothing."""


def mark_at_return(frame: FrameType, edges: Callable[[CodeType], Any], at_return: Return) -> Optional[bool]:
    """Have the signal marked when what a loop's frame has called returns to it; False if that can't be.

    `frame` is where the thread is; it is looked for the innermost one below it whose code has back-edges. None: there is none.
    """
    if sys.gettrace() is not None:
        return False
    called: Optional[FrameType] = None
    one: Optional[FrameType] = frame
    for _ in range(_DEEP):
        if one is None:
            return None
        if edges(one.f_code):
            break
        if not one.f_code.co_flags & _SUSPENDED:
            called = one
        one = one.f_back
    if called is None:
        return False
    if called.f_trace is None:
        called.f_trace = at_return.made()
    return isinstance(called.f_trace, at_return.made)
