"""Back-edges on Python 3.9 to 3.11: a call that the interpreter makes at its next safe point, in the main thread.

The safe point is where the interpreter looks for signals: on 3.11 a backward jump, a function's beginning or a call's
end; before that also elsewhere. A handler is installed for a real-time signal that nobody sends; the link's thread
marks that signal as arrived (`_thread.interrupt_main(signum)`), the handler sees in which frame and at which
instruction it landed; while a profiler runs, which would show the handler, it isn't called before the deadline
(`unprofiled`). Not a back-edge of the user's: it is marked again at once, for a burst, then again after a pause, so
that code between two back-edges is slowed little. Where it landed in what a loop of the user's has called, it is marked
again when that call returns (`returning`), at no cost meanwhile. 3.9 can't mark a signal of choice; there the
interpreter's list of pending calls is used, and bursts alone: a loop whose body computes long in Python passes its turn
late.
"""

from __future__ import annotations

import _thread
import ctypes
import signal
import sys
import threading
import time
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Optional, Tuple

from ..interrupts import INVISIBLE
from ..meter import frame_of
from ..trace import is_ours, is_users, without_ours
from .backedge import backedges
from .code import Owner
from .landing import has_room, long_enough, may_wait, out_of_patience
from .returning import Return, mark_at_return
from .unprofiled import Unprofiled

if TYPE_CHECKING:
    from ..session import Session

_CAN_MARK = sys.version_info >= (3, 10)
#: How long a burst of landings lasts and the pause between two, in seconds: about a tenth of the time is spent landing.
#: On 3.9 one landing is called 32 times where it is, so bursts there must be longer to get anywhere.
BURST_S, PAUSE_S = (0.0004, 0.003) if _CAN_MARK else (0.004, 0.006)
#: Landings between two looks at how full the stack is.
_FEW = 16
#: Codes whose back-edges are remembered.
_MANY = 1024
_NONE: FrozenSet[int] = frozenset()


class PendingLoops:
    """Armed by the link's thread, again and again; lands in the main thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._owner = Owner()
        #: Back-edges by the code's id; the code is kept, so that its id stays its own.
        self._codes: Dict[int, Tuple[CodeType, Optional[FrozenSet[int]]]] = {}
        self._armed = False
        self._main = threading.main_thread().ident or 0
        self._landings = 0
        #: In this burst no loop of the user's was found beneath what runs: it isn't looked for again.
        self._no_loops = False
        self._until = 0.0
        self._place: Optional[Tuple[int, int]] = None
        self._signal = _free_signal() if _CAN_MARK else None
        self._return = Return(self._signal) if self._signal is not None else None
        self._usable = self._signal is not None or not _CAN_MARK
        self._call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._on_call)
        self._handler = Unprofiled(self._on_signal)
        if self._signal is not None:
            try:
                signal.signal(self._signal, self._handler.made)
            except ValueError:
                self._usable = False  # the guest was started outside the main thread

    def period_s(self, wanted_s: float) -> float:
        """A burst ends by itself and must be begun again."""
        return PAUSE_S if self._usable else wanted_s

    def arm(self) -> None:
        """Begin a burst of landings, unless nothing may wait where the main thread is now."""
        frame = frame_of(self._main)
        if not has_room(frame) or not out_of_patience(frame, self._session):
            return
        self._handler.in_profiles(long_enough(self._session))
        self._armed = True
        self._landings = 0
        self._no_loops = False
        self._until = time.perf_counter() + BURST_S
        self._mark()

    def disarm(self) -> None:
        """A landing that is on its way finds nothing to do."""
        self._armed = False

    def forked(self) -> None:
        """The child has no link's thread that would arm it."""
        self._armed = False

    def _mark(self) -> None:
        if not self._usable:
            return
        if self._signal is None:
            ctypes.pythonapi.Py_AddPendingCall(self._call, None)
        elif signal.getsignal(self._signal) is self._handler.made:
            _marks[self._signal]
        else:
            self._usable = False  # the user has a use for this signal

    def _on_call(self, _argument: Any) -> int:
        """Python 3.9: nothing can be raised out of a pending call, so the link's thread raises it afterwards.

        What a pending call adds is called at the same place, up to 32 times; that isn't a landing of its own.
        """
        try:
            frame = sys._getframe(1)
            place = (id(frame), frame.f_lasti)
            if place == self._place:
                again = True
            else:
                self._place = place
                again = self._land(frame)
            if again and self._armed:
                self._mark()
            else:
                self._place = None
        except RecursionError:
            self._place = None
        except BaseException as error:
            if is_users(error):
                self._session.redo.raise_in(threading.get_ident(), error)
        return 0

    def _on_signal(self, signum: int, frame: Optional[FrameType]) -> None:
        again = False
        try:
            again = self._land(frame)
        except RecursionError:
            return  # too near to the limit to look whose it is
        except BaseException as error:
            if is_users(error):
                error.__traceback__ = without_ours(error.__traceback__)
                raise
        if again:
            # The last thing before the return, and no call: after a call the interpreter would look for signals here.
            _marks[signum]

    def _land(self, frame: Optional[FrameType]) -> bool:
        """The interpreter stands at this frame; whether to try again at its next safe point."""
        if not self._armed or frame is None or self._session.turn.busy_here():
            return False
        edges = self._edges(frame.f_code)
        if edges is None:
            return False
        if frame.f_lasti in edges:
            return may_wait(frame, self._session) and self._session.back_edge(raises=INVISIBLE)
        self._landings += 1
        if self._landings % _FEW == 0 and not (has_room(frame) and out_of_patience(frame, self._session)):
            return False
        if self._return is not None:
            if edges:
                return True  # in the frame of a loop the back-edge can't be far
            if not self._no_loops:
                marked = mark_at_return(frame, self._edges, self._return)
                if marked:
                    return False
                self._no_loops = marked is None
        if self._landings == 1:
            self._until = time.perf_counter() + BURST_S
        return time.perf_counter() < self._until

    def _edges(self, code: CodeType) -> Optional[FrozenSet[int]]:
        """Where the user's code jumps backwards, nowhere in other people's; None for the guest's own."""
        known = self._codes.get(id(code))
        if known is None:
            edges = None if is_ours(code) else backedges(code) if self._owner.is_users(code) else _NONE
            if len(self._codes) >= _MANY:
                self._codes.clear()
            known = self._codes[id(code)] = (code, edges)
        return known[1]


class _Marks:
    """`marks[number]` marks a signal as arrived: a call that isn't a call instruction. See `_on_signal`."""

    __getitem__: Any = _thread.interrupt_main


_marks = _Marks()


def _free_signal() -> Optional[int]:
    """A real-time signal that nobody handles."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGRTMAX"):
        return None
    for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
        if signal.getsignal(number) is signal.SIG_DFL:
            return number
    return None
