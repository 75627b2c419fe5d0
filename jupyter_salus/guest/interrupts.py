"""Ctrl-C while the main thread waits: it ends the wait, then does what it would have done in the user's code.

For the time of the wait a handler of the guest's stands in for SIGINT's, notes the signal and ends the wait. Then:
- a handler of Python's or of the user's is called, so that `KeyboardInterrupt`, or whatever the user made of it, comes
  out of the line of the user's code that waited;
- ipykernel's handler for cells with a top-level `await` only cancels the cell's task at its next `await`, which a
  loop may never reach: there `KeyboardInterrupt` is raised;
- outside cells SIGINT is ignored by ipykernel: the wait ends, the code goes on ungoverned.
Python 3.9 and 3.10 would show the guest's frame in the traceback; there the link's thread sends the signal again once
the main thread has left the guest's code.
"""

from __future__ import annotations

import _thread
import ctypes
import logging
import signal
import sys
import threading
from types import FrameType
from typing import Any, Optional

from .trace import first_foreign, is_ours
from .wait import Outcome, Wait

_log = logging.getLogger("jupyter_salus")

#: Whether a function of ours can strip its own frame from an exception that it lets through.
INVISIBLE = sys.version_info >= (3, 11)


class Interrupts:
    """Watches SIGINT for one wait of the main thread. In other threads it does nothing: they get no signals."""

    def __init__(self, wait: Wait) -> None:
        self.came = False
        self._wait = wait
        self._previous: Any = None
        self._standing = False

    def begin(self) -> None:
        """Put the guest's handler in place; the caller calls `finish` in any case."""
        if self._wait.is_main:
            self._previous = signal.getsignal(signal.SIGINT)
            if self._previous is not None and self._previous is not signal.SIG_DFL:
                signal.signal(signal.SIGINT, self._note)
                self._standing = True

    def finish(self) -> None:
        """Put the user's handler back."""
        if self._standing:
            signal.signal(signal.SIGINT, self._previous)
            self._standing = False

    def _note(self, _signum: int, _frame: Optional[FrameType]) -> None:
        self.came = True
        self._wait.end(Outcome.INTERRUPTED)

    def deliver(self, frame: Optional[FrameType], redo: Redo) -> None:
        """Do what the signal would have done in the user's code: may raise, as the user's own handler does."""
        previous = self._previous
        if not callable(previous) or previous is signal.SIG_IGN:
            return
        if _only_cancels_a_task(previous):
            if INVISIBLE:
                raise KeyboardInterrupt
            redo.keyboard_interrupt(self._wait.thread)
        elif INVISIBLE:
            previous(int(signal.SIGINT), frame)
        else:
            redo.interrupt()


def _only_cancels_a_task(handler: Any) -> bool:
    """Whether this is ipykernel's handler during a cell with a top-level `await`."""
    return "_cancel_on_sigint" in getattr(handler, "__qualname__", "")


class Redo:
    """Interrupts to be made again by the link's thread, once the thread that they are for has left the guest's code."""

    def __init__(self) -> None:
        self._signal = False
        self._raise_in: Optional[int] = None

    @property
    def pending(self) -> bool:
        """Whether the link's thread should call `attempt`."""
        return self._signal or self._raise_in is not None

    def interrupt(self) -> None:
        """SIGINT's handler is to run in the main thread."""
        self._signal = True

    def keyboard_interrupt(self, thread: int) -> None:
        """`KeyboardInterrupt` is to be raised in this thread."""
        self._raise_in = thread

    def attempt(self) -> None:
        """In the link's thread: make what is pending, unless its thread is still in the guest's code."""
        main = threading.main_thread().ident
        if self._signal and main is not None and not _in_our_code(main):
            self._signal = False
            _thread.interrupt_main()
        thread = self._raise_in
        if thread is not None and not _in_our_code(thread):
            self._raise_in = None
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))


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
