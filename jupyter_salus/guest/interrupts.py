"""Ctrl-C while the main thread waits: it ends the wait, then does what it would have done in the user's code.

For the time of the wait a handler of the guest's stands in for those of Python functions and of SIGINT, notes the signal
and ends the wait, so that no handler of the user's raises in the middle of the guest's code. Then:
- a handler of Python's or of the user's is called, so that `KeyboardInterrupt`, or whatever the user made of it, comes
  out of the line of the user's code that waited;
- ipykernel's handler for cells with a top-level `await` only cancels the cell's task at its next `await`, which a
  loop may never reach: there `KeyboardInterrupt` is raised;
- outside cells SIGINT is ignored by ipykernel: the wait ends, the code goes on ungoverned.
Where an exception can't come out of the guest's code as one of the user's, the link's thread makes the signal again once
the main thread has left the guest's code. So on Python 3.9 and 3.10, which would show the guest's frame in the
traceback; and at back-edges on 3.12 and later, where CPython looks for the handler of an exception from a JUMP event's
callback at a wrong place, so that no `try` around the loop sees it (seen on 3.12.1 and 3.13.0).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import ctypes
import signal
import sys
import threading
from types import FrameType
from typing import Any, Dict, List, Optional, Tuple, Type

from .trace import first_foreign, is_ours
from .wait import Outcome, Wait

#: Whether a function of ours can strip its own frame from an exception that it lets through.
INVISIBLE = sys.version_info >= (3, 11)


class Interrupts:
    """Watches signals for one wait of the main thread. In other threads it does nothing: they get none."""

    def __init__(self, wait: Wait, raises: bool) -> None:
        #: Signals that came during the wait, in their order.
        self.came: List[int] = []
        self._wait = wait
        self._raises = raises
        self._previous: Dict[int, Any] = {}

    def begin(self) -> None:
        """Put the guest's handler in place; the caller calls `finish` in any case."""
        if not self._wait.is_main:
            return
        # The C module alone: `signal` makes an enumeration's member of each answer, and another session waits meanwhile.
        for number in range(1, signal.NSIG):
            previous = _signal.getsignal(number)
            if _stands_back(number, previous):
                _signal.signal(number, self._note)
                self._previous[number] = previous

    def finish(self) -> None:
        """Put the user's handlers back."""
        for number, previous in self._previous.items():
            if _signal.getsignal(number) == self._note:
                _signal.signal(number, previous)

    def _note(self, number: int, _frame: Optional[FrameType]) -> None:
        self.came.append(number)
        self._wait.end(Outcome.INTERRUPTED)

    def deliver(self, frame: Optional[FrameType], redo: Redo) -> None:
        """Do what the signals would have done in the user's code: may raise, as the user's own handler does."""
        for number in dict.fromkeys(self.came or [int(signal.SIGINT)]):
            previous = self._previous.get(number)
            if not callable(previous):
                continue
            if number == signal.SIGINT and _only_cancels_a_task(previous):
                if self._raises:
                    raise KeyboardInterrupt
                redo.raise_in(self._wait.thread, KeyboardInterrupt())
            elif self._raises:
                previous(number, frame)
            else:
                redo.signal(number)


def _stands_back(number: int, handler: Any) -> bool:
    """Whether the guest's handler may stand in for this one: for a function, and for the ignoring of SIGINT."""
    if number == signal.SIGINT and handler == signal.SIG_IGN:
        return True
    if not callable(handler):
        return False  # the system's default, to be ignored, or of another language
    module = getattr(handler, "__module__", None) or ""
    return not module.startswith(("asyncio", "tornado", __name__.partition(".")[0]))


def _only_cancels_a_task(handler: Any) -> bool:
    """Whether this is ipykernel's handler during a cell with a top-level `await`."""
    return "_cancel_on_sigint" in getattr(handler, "__qualname__", "")


class Redo:
    """Interrupts to be made again by the link's thread, once the thread that they are for has left the guest's code."""

    def __init__(self) -> None:
        self._signals: List[int] = []
        self._raise: Optional[Tuple[int, BaseException]] = None

    @property
    def pending(self) -> bool:
        """Whether the link's thread should call `attempt`; nothing waits meanwhile."""
        return bool(self._signals) or self._raise is not None

    def signal(self, number: int) -> None:
        """The handler of this signal is to run in the main thread."""
        self._signals.append(number)

    def raise_in(self, thread: int, error: BaseException) -> None:
        """This exception is to be raised in this thread."""
        self._raise = (thread, error)

    def attempt(self) -> None:
        """In the link's thread: make what is pending, unless its thread is still in the guest's code."""
        main = threading.main_thread().ident
        if self._signals and main is not None and not _in_our_code(main):
            _signal_again(self._signals[0], main)
            del self._signals[0]
        if self._raise is not None and not _in_our_code(self._raise[0]):
            thread, error = self._raise
            self._raise = None
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_carrier(error)))


def _carrier(error: BaseException) -> Type[BaseException]:
    """A class to raise in another thread, which takes classes alone: making an instance of it gives this very exception."""
    kind = type(error)
    if kind is KeyboardInterrupt:
        return kind
    named = {"__new__": lambda _cls: error, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), named)


def _signal_again(number: int, main: int) -> None:
    if number == signal.SIGINT:
        _thread.interrupt_main()
    elif sys.version_info >= (3, 10):
        _thread.interrupt_main(signal.Signals(number))
    else:
        signal.pthread_kill(main, number)


def _in_our_code(thread: int) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if is_ours(frame.f_code):
            # The wrapper around a running cell is below everything that the cell does.
            return frame.f_code.co_name != "do_execute"
        frame = frame.f_back
    return False


def users_frame() -> Optional[FrameType]:
    """The frame that a signal would have interrupted."""
    return first_foreign(sys._getframe(1))
