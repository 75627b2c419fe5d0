"""One thread's wait for a turn, which the grant, an interrupt and the end of the backend all end.

The thread waits on a plain lock, in slices: a signal that the system hands to another thread doesn't wake it, and a
signal just before the lock blocks isn't seen before the slice ends. Ctrl-C thus ends a wait within one slice.
"""

from __future__ import annotations

import _thread
import enum
import threading
import time
from typing import Callable, Optional

from ..protocol.promptness import be_as_before, be_prompt

#: The longest a wait goes without looking around, in seconds.
SLICE_S = 0.2


class Outcome(enum.Enum):
    """How a wait ended."""

    GRANTED = "granted"
    #: The backend is gone or the guest stopped: the code goes on ungoverned.
    UNGOVERNED = "ungoverned"
    INTERRUPTED = "interrupted"


class Wait:
    """A thread that waits. `end` may be called by any thread and by signal handlers, more than once: the first counts."""

    def __init__(self) -> None:
        #: The ticket under which the session waits; None before it has asked.
        self.ticket: Optional[int] = None
        self.thread = threading.get_ident()
        self.is_main = threading.current_thread() is threading.main_thread()
        self.began = time.monotonic()
        self.outcome: Optional[Outcome] = None
        #: When the server asked to interrupt, monotonic; the main thread then expects a signal as well.
        self.asked_to_end: Optional[float] = None
        self._gate = _thread.allocate_lock()
        self._gate.acquire()

    def end(self, outcome: Outcome) -> None:
        """Let the thread go on."""
        if self.outcome is None:
            self.outcome = outcome
            try:
                self._gate.release()
            except RuntimeError:
                pass  # a signal handler ended the wait between the two lines above

    def stand(self, look: Callable[[float], None]) -> Outcome:
        """Wait until the end; `look` is called about every slice with the seconds waited so far."""
        before = be_prompt()
        try:
            while self.outcome is None:
                self._gate.acquire(timeout=SLICE_S)
                if self.outcome is None:
                    look(time.monotonic() - self.began)
        finally:
            be_as_before(before)
        return self.outcome
