"""Turns of guarded sessions: a touch asks for one, a grant opens the gates, a boundary or a deadline closes them.

A turn ends in the books only when every gate of the session is shut and the device drained. It ends at the end of the
last cell; at the guest's boundary once it is revoked; in mid-iteration when that doesn't come in time; outside cells, where
nobody knows when the work is done, after a rest that grows as long as the session touches again at once. A closing that
fails leaves the gates open and is tried again after 1, 2, 4 s; what was tried so three times in mid-iteration is tried
again at boundaries alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...errors import SalusError
from ...protocol.guard import CloseGate, MoveFailed, OpenGate, RestoreBlocks, TurnDrained
from ...protocol.messages import Interrupt, TurnGranted, TurnReleased, TurnRevoked, TurnWanted, TurnWithdrawn
from ..core import decisions
from ..core import events as core
from ..core.config import Config
from ..core.events import Event
from .clock import Clock
from .guarded import Closing, Guard, Guarded
from .rooms import Rooms

#: How long a guard may take to drain the device before the closing counts as failed.
DRAIN_S = 5.0
#: Closings in mid-iteration that may fail before only boundaries are tried.
TRIES = 3
#: Outside cells: a turn's shortest and longest rest, and how soon a touch comes "at once".
REST_S, LONGEST_REST_S, AT_ONCE_S = 0.1, 5.0, 0.05
#: So long after an interrupt calls pass: an operation of a framework is several.
PASS_S = 2.0
#: Longest pause between two attempts to end a turn whose cell is over.
LONGEST_PAUSE_S = 16.0


class Gates:
    """Opens and closes. `tell` gives the core an event; `note(session, text)` is for people."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        rooms: Rooms,
        tell: Callable[[Event], None],
        note: Callable[[str, str], None],
        log: logging.Logger,
    ) -> None:
        self._config = config
        self._clock = clock
        self._rooms = rooms
        self._tell = tell
        self._note = note
        self._log = log
        #: Who waits for a session's closing: called with None, or with why it failed.
        self._after: dict[Guarded, Callable[[str | None], None]] = {}

    # ---- wishes --------------------------------------------------------------------------------------------------------

    def touched(self, session: Guarded, guard: Guard) -> None:
        """A call waits at a gate."""
        guard.wants = True
        if session.record.epoch is None:
            if session.passes_until is not None and self._clock.now() < session.passes_until:
                self._pass(session, guard)
            soon = self._clock.now() - session.rested_at < AT_ONCE_S
            session.rest_s = min(session.rest_s * 2, LONGEST_REST_S) if soon else REST_S
            self.want(session)
        elif session.closing is None:
            self._open(session, guard)

    def want(self, session: Guarded, ticket: int | None = None, silent: bool = False) -> None:
        """Have the session wait for a turn, unless it does or has one. A guest's ticket replaces our own."""
        record = session.record
        if record.core_id is None or record.leaving or record.epoch is not None or (session.waiting and not ticket):
            return
        session.ticket = ticket or session.next_ticket()
        session.waiting = True
        try:
            self._tell(core.TurnRequested(record.core_id, session.ticket, not record.cells, silent))
        except SalusError as error:
            session.waiting = False
            self._log.info("No turn for %s: %s", record.session, error.message)

    def guest_wants(self, session: Guarded, said: TurnWanted) -> None:
        """The guest waits for a turn by itself."""
        self._guest_waits(session, said.ticket, said.silent)

    def guest_withdrew(self, session: Guarded, said: TurnWithdrawn) -> None:
        """The guest's wait was ended; a call that waits at a gate waits on."""
        if session.guest_ticket != said.ticket:
            return
        session.guest_ticket = None
        if session.waiting and session.ticket == said.ticket:
            if session.wants:
                self.want(session, session.next_ticket())
            else:
                self._withdraw(session)

    def _guest_waits(self, session: Guarded, ticket: int, silent: bool = False) -> None:
        record = session.record
        if record.epoch is None:
            session.guest_ticket = ticket
            self.want(session, ticket, silent)
        elif session.closing is None and not session.revoked:
            if record.connection is not None:
                record.connection.say(TurnGranted(record.epoch, ticket))
        else:
            session.guest_ticket = ticket
            self.close(session, stopped=False)

    def _withdraw(self, session: Guarded) -> None:
        session.waiting = False
        if session.record.core_id is not None and not session.record.leaving:
            self._said(core.TurnWithdrawn(session.record.core_id, session.ticket))

    # ---- turns ---------------------------------------------------------------------------------------------------------

    def granted(self, session: Guarded, decision: decisions.GrantTurn) -> None:
        """The core gave a turn."""
        record = session.record
        record.epoch = session.last_epoch = decision.epoch
        record.touched = True
        session.waiting = session.revoked = False
        session.passes_until = None
        if session.closing is not None:
            # It was suspended a moment ago, and there is room by now: the gates open again.
            session.closing = None
            self._after.pop(session, None)
        session.peak_bytes = session.device_bytes
        ticket, session.guest_ticket = session.guest_ticket, None
        if record.connection is not None:
            record.connection.say(TurnGranted(decision.epoch, ticket or 0))
        guards = list(session.connected())
        # Who waits takes what the session may have beyond what it holds.
        for guard in sorted(guards, key=lambda one: not one.wants):
            self._open(session, guard)
        if not guards and record.connection is None:
            self.close(session, stopped=False)
            return
        self._rooms.pump(session)
        self._rest(session)

    def _open(self, session: Guarded, guard: Guard) -> None:
        epoch = session.record.epoch
        if guard.connection is None or epoch is None:
            return
        guard.shut = guard.wants = False
        guard.granted_bytes = self._rooms.share(session, guard)
        limit_bytes, reclaimable_bytes = self._rooms.figures(session)
        guard.connection.say(
            OpenGate(
                epoch,
                granted_bytes=guard.granted_bytes,
                limit_bytes=limit_bytes,
                reclaimable_bytes=reclaimable_bytes,
            )
        )

    def cell_began(self, session: Guarded) -> None:
        """A cell is open now: its end is the turn's."""
        if session.timer is not None and not session.revoked:
            session.timer.cancel()

    def cells_ended(self, session: Guarded) -> None:
        """The last open cell ended."""
        if session.passes_until is not None:
            session.passes_until = self._clock.now()  # what was interrupted is over
            self.unwanted(session)
        if session.record.epoch is not None:
            self.close(session, stopped=False)

    def guest_left(self, session: Guarded) -> None:
        """The guest's connection is over, and the guards are there still."""
        session.guest_ticket = None
        if session.record.epoch is not None:
            self._rest(session)
        elif session.waiting and not session.wants:
            self._withdraw(session)

    def guest_released(self, session: Guarded, said: TurnReleased) -> None:
        """The guest is at a boundary, or gives back what it didn't ask for."""
        record = session.record
        if said.epoch == record.epoch and (session.revoked or not record.cells):
            if said.wants_more and said.ticket is not None:
                session.guest_ticket = said.ticket
            self.close(session, stopped=False)
        elif said.wants_more and said.ticket is not None:
            self._guest_waits(session, said.ticket)

    def revoke(self, session: Guarded, decision: decisions.RevokeTurn) -> None:
        """The core wants the turn back: at a boundary, where somebody knows of one."""
        record = session.record
        if record.epoch != decision.epoch:
            return
        session.revoked = True
        if record.connection is None or not record.cells:
            self.close(session, stopped=False)
            return
        # With a gate nobody has to wait long for a boundary that nothing is known of.
        known = decision.deadline_s < self._config.revoke_unknown_s
        deadline_s = decision.deadline_s if known else self._config.revoke_least_s
        record.connection.say(TurnRevoked(decision.epoch, self._clock.wall() + deadline_s))
        self._after_s(session, deadline_s, lambda: self._late(session, decision.epoch))

    def _late(self, session: Guarded, epoch: int) -> None:
        if session.record.epoch == epoch and session.revoked:
            self.close(session, stopped=True)

    def stop(self, session: Guarded, decision: decisions.StopTurn) -> None:
        """The core wants it stopped wherever it is."""
        if session.record.epoch == decision.epoch and session.failures < TRIES:
            self.close(session, stopped=True)

    def suspended(self, session: Guarded, decision: decisions.SuspendTurn) -> None:
        """The core took the turn of a session that waits for room: it waits on behind a shut gate."""
        if session.record.epoch == decision.epoch:
            self.suspend(session, lambda why: None)

    def unwanted(self, session: Guarded) -> None:
        """A wait for room or at the gate ended: if it was all that the session waits with, it wants no turn any more."""
        if (
            session.waiting
            and session.record.epoch is None
            and session.closing is None
            and session.guest_ticket is None
            and not session.wants
        ):
            self._withdraw(session)

    def _rest(self, session: Guarded) -> None:
        """Outside cells a turn ends by itself."""
        record = session.record
        if record.cells and record.connection is not None:
            return
        epoch = record.epoch
        self._after_s(session, max(session.rest_s, REST_S), lambda: self._rested(session, epoch))

    def _rested(self, session: Guarded, epoch: int | None) -> None:
        record = session.record
        if record.epoch != epoch or (record.cells and record.connection is not None):
            return
        if any(guard.requests for guard in session.connected()):
            self._rest(session)  # in the middle of something: it waits for room
        else:
            self.close(session, stopped=False)

    def _after_s(self, session: Guarded, seconds: float, what: Callable[[], None]) -> None:
        if session.timer is not None:
            session.timer.cancel()
        session.timer = asyncio.get_running_loop().call_later(seconds, what)

    # ---- closing -------------------------------------------------------------------------------------------------------

    def suspend(self, session: Guarded, then: Callable[[str | None], None]) -> None:
        """Shut the gates of a session that is to move out whole; `then` hears of the outcome, at once where all are."""
        self._after[session] = then
        self.close(session, stopped=True, suspended=session.record.epoch is not None)

    def close(self, session: Guarded, *, stopped: bool, suspended: bool = False) -> None:
        """End the turn once all gates are shut and drained."""
        closing = session.closing
        if closing is not None:
            closing.stopped = closing.stopped and stopped
            closing.suspended = closing.suspended or suspended
            return
        waiting = {guard for guard in session.connected() if not guard.shut}
        session.closing = Closing(stopped, set(waiting), suspended)
        for guard in waiting:
            self._shut(session, guard)
        if not waiting:
            self._all_drained(session)

    def _shut(self, session: Guarded, guard: Guard) -> None:
        if guard.connection is not None:
            guard.connection.say(CloseGate(max(session.last_epoch, 1), DRAIN_S))

    def stray(self, session: Guarded, guard: Guard) -> None:
        """A gate is open that nobody opened: it is shut."""
        if session.record.epoch is None and not guard.shut:
            self._shut(session, guard)

    def drained(self, session: Guarded, guard: Guard, said: TurnDrained) -> None:
        """A guard's gate is shut and its device drained."""
        guard.heard(said)
        if said.epoch < session.last_epoch:
            return  # of an earlier closing; a gate was opened since
        guard.shut = True
        closing = session.closing
        if closing is not None:
            closing.waiting.discard(guard)
            if not closing.waiting:
                self._all_drained(session)

    def failed(self, session: Guarded, guard: Guard, said: MoveFailed) -> None:
        """An order about a gate wasn't carried out."""
        if said.code == "blocks_out":
            # Memory of this process alone is out: it comes back, and the gate is opened then.
            guard.shut, guard.wants = True, True
            if guard.connection is not None:
                guard.connection.say(RestoreBlocks(0))
            return
        if said.code == "device_error":
            self.broken(session, said.message)
            return
        guard.shut = False
        closing = session.closing
        if closing is None:
            asyncio.get_running_loop().call_later(1.0, self.stray, session, guard)
            return
        self._given_up(session, closing, said.message)

    def broken(self, session: Guarded, why: str) -> None:
        """A sticky error of the device, an illegal access say: only a restart helps. It stands in nobody's way."""
        if session.record.core_id is None or session.record.leaving:
            return
        session.end()
        session.record.epoch = None
        then = self._after.pop(session, None)
        if then is not None:
            then(why)
        self._said(core.SessionBroken(session.record.core_id, why))

    def back(self, session: Guarded, guard: Guard) -> None:
        """What was out of one process alone is back."""
        if session.record.epoch is not None and session.closing is None:
            self._open(session, guard)

    def _given_up(self, session: Guarded, closing: Closing, why: str) -> None:
        session.closing = None
        session.failures += 1
        for guard in session.connected():
            if guard.shut and session.record.epoch is not None:
                self._open(session, guard)
        then = self._after.pop(session, None)
        if then is not None:
            then(why)
        boundaries_only = closing.stopped and session.failures >= TRIES
        if boundaries_only and session.record.core_id is not None:
            self._note(session.record.core_id, f"can be stopped at boundaries only: {why}")
        if session.record.epoch is None or boundaries_only:
            return
        pause_s = min(2.0 ** (session.failures - 1), LONGEST_PAUSE_S)
        epoch = session.record.epoch
        self._after_s(session, pause_s, lambda: self._again(session, epoch, closing.stopped))

    def _again(self, session: Guarded, epoch: int, stopped: bool) -> None:
        if session.record.epoch == epoch:
            self.close(session, stopped=stopped)

    def _all_drained(self, session: Guarded) -> None:
        closing, session.closing = session.closing, None
        assert closing is not None, "called at the end of a closing"
        session.failures = 0
        if session.timer is not None:
            session.timer.cancel()
            session.timer = None
        then = self._after.pop(session, None)
        epoch, session.record.epoch = session.record.epoch, None
        if epoch is not None:
            session.rested_at = self._clock.now()
            session.revoked = False
            if closing.suspended:
                # The core took the turn itself; it has the session wait, and a request for room with it.
                session.waiting = True
                if session.record.core_id is not None and session.move is None and not session.record.leaving:
                    # What it was granted and couldn't have isn't there.
                    holds = max(session.device_bytes - session.told_bytes, 0)
                    self._said(core.MemoryMeasured(session.record.core_id, None, holds))
            else:
                self._release(session, epoch, closing.stopped)
        if then is not None:
            then(None)

    def _release(self, session: Guarded, epoch: int, stopped: bool) -> None:
        record = session.record
        if record.core_id is None or record.leaving:
            return
        held = session.device_bytes
        stopped_bytes = max(held - session.told_bytes, 0) if stopped else 0
        if not stopped or held < session.told_bytes:
            self.settle(session, max(session.peak_bytes - held, 0) if not stopped else None)
        ticket = session.guest_ticket
        if ticket is None and session.wants:
            ticket = session.next_ticket()
        session.growth = None
        session.waiting = ticket is not None
        session.ticket = ticket or session.ticket
        self._said(core.TurnReleased(record.core_id, epoch, ticket, stopped_bytes))

    def settle(self, session: Guarded, ephemeral_bytes: int | None = None) -> None:
        """Tell the core what the session holds."""
        if session.record.core_id is None or session.record.leaving:
            return
        session.told_bytes = session.device_bytes
        self._said(core.MemoryMeasured(session.record.core_id, session.told_bytes, ephemeral_bytes))

    # ---- the end of a guard, and interrupts ------------------------------------------------------------------------------

    def lost(self, session: Guarded, guard: Guard) -> None:
        """A guard's connection is over: whatever its gate was, this session's turn doesn't wait for it."""
        guard.wants = False
        guard.shut = True
        closing = session.closing
        if closing is not None:
            closing.waiting.discard(guard)
            if not closing.waiting:
                self._all_drained(session)
        elif session.record.epoch is not None:
            if not any(True for _ in session.connected()):
                self.close(session, stopped=False)
        elif session.waiting and session.guest_ticket is None and not session.wants:
            self._withdraw(session)

    def interrupt(self, session: Guarded) -> None:
        """End the waits of all threads: those for room at once, that for a turn by letting the calls pass that a
        framework makes before Python can raise: they return their true results. Only once between two turns."""
        for guard in session.connected():
            assert guard.connection is not None
            guard.connection.say(Interrupt())
        if session.record.epoch is None and session.passes_until is None:
            session.passes_until = self._clock.now() + PASS_S
            for guard in session.connected():
                if guard.wants:
                    self._pass(session, guard)
            asyncio.get_running_loop().call_later(PASS_S, self.unwanted, session)

    def _pass(self, session: Guarded, guard: Guard) -> None:
        if guard.connection is not None and not guard.evicted_bytes:
            granted = self._rooms.once(session, guard)
            guard.wants = False  # the next call touches anew
            guard.connection.say(OpenGate(max(session.last_epoch, 1), calls=1, granted_bytes=granted))

    def _said(self, event: Event) -> None:
        try:
            self._tell(event)
        except SalusError as error:
            self._log.warning("The core refused %r: %s", event, error)
