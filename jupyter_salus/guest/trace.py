"""Which frames of a traceback are the guest's, and an exception's traceback without them.

What a user's own signal handler raises while the guest waits, and the `KeyboardInterrupt` that ends a wait, belong to
the user: shown as in a plain kernel, where the handler runs in the user's frame. On Python 3.11 and later a bare
`raise` adds no entry for the frame it stands in, so a function of ours that strips and re-raises is invisible; on 3.9
and 3.10 it leaves one entry, its own, which is why waits there hand an interrupt over instead (`interrupts`).
"""

from __future__ import annotations

import functools
import os
import sysconfig
from types import CodeType, FrameType, TracebackType
from typing import Any, Callable, Optional, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OURS = (os.path.join(_PACKAGE, "guest") + os.sep, os.path.join(_PACKAGE, "protocol") + os.sep)
#: Begins the file's name in code that debuggers shall pass over: they show no frames of what is frozen.
_FROZEN = "<frozen jupyter_salus."
_STDLIB = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")})


def is_ours(code: CodeType) -> bool:
    """Whether this code is the guest's."""
    return code.co_filename.startswith(_OURS) or code.co_filename.startswith(_FROZEN)


def without_ours(traceback: Optional[TracebackType]) -> Optional[TracebackType]:
    """The traceback from its first frame on that isn't the guest's; None if there is none."""
    while traceback is not None and is_ours(traceback.tb_frame.f_code):
        traceback = traceback.tb_next
    return traceback


def is_users(error: BaseException) -> bool:
    """Whether an exception that came out of the guest's code is the user's: an interrupt, or raised by a handler of theirs.

    An exception whose frames are all the guest's and the standard library's is a fault of the guest, or of a machine
    at its limits, and never reaches the user.
    """
    if not isinstance(error, Exception):
        return True
    traceback = error.__traceback__
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        if not is_ours(traceback.tb_frame.f_code) and (not name.startswith(_STDLIB) or "site-packages" in name):
            return True
        traceback = traceback.tb_next
    return False


def first_foreign(frame: Optional[FrameType]) -> Optional[FrameType]:
    """The innermost frame that isn't the guest's."""
    while frame is not None and is_ours(frame.f_code):
        frame = frame.f_back
    return frame


def beneath(function: F) -> F:
    """A function whose frame lies beneath the user's own while they run: a debugger's call stack doesn't show it."""
    code: CodeType = function.__code__
    named = f"{_FROZEN}{function.__module__.partition('.')[2]}>"
    function.__code__ = code.replace(co_filename=named)
    return function


def invisible(function: F) -> F:
    """A function that the user's code calls, or a framework's: what it raises shows no frame of the guest."""

    @functools.wraps(function)
    def passed(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            error.__traceback__ = without_ours(error.__traceback__)
            raise

    return passed  # type: ignore[return-value]
