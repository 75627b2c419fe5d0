"""The session's turn as the guest knows it: held or not, revoked or not, and which threads wait for it.

A turn belongs to the session, so all threads that wait share one ticket, and one grant ends all their waits. What
comes late is harmless: a grant when nobody waits any more is given back at once, a revocation of
another epoch is answered as if the turn were given back.
"""

from __future__ import annotations

import threading
from typing import Callable, List, Optional, Tuple

from ..protocol.codec import Message
from ..protocol.turns import (
    TurnGranted,
    TurnReleased,
    TurnRevoked,
    TurnWanted,
    TurnWithdrawn,
    WaitExplained,
)
from .progress import Tally
from .wait import Outcome, Wait


class Turn:
    """`send` delivers messages in one go; `tally` counts what is done in the turn."""

    def __init__(self, send: Callable[..., bool], tally: Tally) -> None:
        self._send = send
        self._tally = tally
        self.lock = threading.RLock()
        #: Held and not revoked: what the fast path of a boundary reads.
        self.settled = False
        self.epoch: Optional[int] = None
        self.revoked = False
        #: When more than asking happens to a revoked turn: seconds since the Unix epoch.
        self.deadline = 0.0
        #: Held for work outside cells.
        self.background = False
        #: A turn was granted since this kernel started.
        self.ever = False
        #: This session told a new backend that it was in its turn: that one goes on, under whatever ticket.
        self.resumes = False
        #: Turns come unasked as well: the guard asks for them when the device is touched.
        self.unasked = False
        self.explanation: Optional[WaitExplained] = None
        self._ticket: Optional[int] = None
        self._last_ticket = 0
        self._waits: List[Wait] = []

    @property
    def wanted(self) -> bool:
        """Whether some thread waits for a turn."""
        return self._ticket is not None

    def busy_here(self) -> bool:
        """Whether this very thread is inside the turn's code: a signal handler or a finalizer must not wait then."""
        return self.lock._is_owned()  # type: ignore[attr-defined]

    # ---- the threads of the user -------------------------------------------------------------------------------------

    def want(self, wait: Wait, background: bool = False, silent: bool = False) -> bool:
        """Ask for a turn for this wait, giving a revoked one back first; False if there is nothing to wait for.

        The caller calls `leave` in any case.
        """
        with self.lock:
            if self.epoch is not None and not self.revoked:
                return False
            self._waits.append(wait)
            self.background = background
            if self.epoch is not None:
                ticket = self._new_ticket()
                epoch, self.epoch, self.revoked = self.epoch, None, False
                sent = self._send(self._tally.passing_on(epoch, ticket))
            elif self._ticket is None:
                ticket = self._new_ticket()
                sent = self._send(TurnWanted(ticket=ticket, background=background, silent=silent))
            else:
                ticket, sent = self._ticket, True
            if not sent:
                self._ticket = None
                return False
            wait.ticket = ticket
            return True

    def _new_ticket(self) -> int:
        self._last_ticket += 1
        self._ticket = self._last_ticket
        self.explanation = None
        return self._last_ticket

    def leave(self, wait: Wait) -> None:
        """A thread waits no more, by whatever way; the last one to leave withdraws the ticket."""
        with self.lock:
            if wait in self._waits:
                self._waits.remove(wait)
                if not self._waits and self._ticket is not None:
                    ticket, self._ticket = self._ticket, None
                    self._send(TurnWithdrawn(ticket=ticket))

    def release(self, *with_it: Message) -> None:
        """Give the turn back, if it is held; `with_it` goes out in the same go, also if it isn't."""
        with self.lock:
            messages: Tuple[Message, ...] = with_it
            if self.epoch is not None:
                done = self._tally.report(self.epoch)
                released = TurnReleased(epoch=self.epoch, resident_bytes=done.resident_bytes)
                messages = (done, released, *with_it)
                self.epoch, self.settled, self.revoked, self.background = None, False, False, False
            if messages:
                self._send(*messages)

    # ---- the link's thread -------------------------------------------------------------------------------------------

    def on_granted(self, message: TurnGranted) -> None:
        """The backend gave the session a turn."""
        with self.lock:
            awaited = self._ticket is not None or self.resumes or self.unasked
            self.resumes = False
            if self.unasked and self.epoch is not None and self.epoch < message.epoch:
                # The guard was stopped in mid-iteration: that turn is over without a word from here.
                self.epoch = None
            if self.epoch is not None or not awaited:
                # Nobody waits for it: the wait was interrupted while the grant was on its way. Where somebody waits, a
                # grant counts under whatever ticket: it may have crossed a newer request, which the backend takes for
                # one of a session in its turn.
                self._send(TurnReleased(epoch=message.epoch))
                return
            self.epoch, self.revoked, self._ticket, self.explanation = message.epoch, False, None, None
            self.ever = True
            self._tally.begin()
            self.settled = True
            self._end_waits(Outcome.GRANTED)

    def on_revoked(self, message: TurnRevoked) -> None:
        """The backend wants the turn back at the next boundary."""
        with self.lock:
            if message.epoch == self.epoch:
                self.settled, self.revoked, self.deadline = False, True, message.deadline
            else:
                # Given back already, or lost in an interrupt: saying so again is harmless, silence would cost a deadline.
                self._send(TurnReleased(epoch=message.epoch))

    def on_explained(self, message: WaitExplained) -> None:
        """Why the threads wait."""
        with self.lock:
            if message.ticket == self._ticket:
                self.explanation = message

    def on_down(self) -> None:
        """The backend is gone: nobody waits, and the code goes on ungoverned."""
        with self.lock:
            self.epoch, self.settled, self.revoked, self._ticket, self.explanation = None, False, False, None, None
            self._end_waits(Outcome.UNGOVERNED)

    def interrupt(self, now: float) -> None:
        """The server asks to interrupt. The main thread is also sent a signal, which says better what is meant by it."""
        with self.lock:
            for wait in self._waits:
                wait.asked_to_end = now
                if not wait.is_main:
                    wait.end(Outcome.INTERRUPTED)

    def _end_waits(self, outcome: Outcome) -> None:
        waits, self._waits = self._waits, []
        for wait in waits:
            wait.end(outcome)
