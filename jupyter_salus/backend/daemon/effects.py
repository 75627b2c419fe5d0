"""From decisions to messages. What a decision asks of a device that can't do it comes back as the event of its failure."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...protocol.messages import TurnGranted, TurnRevoked
from ..core import decisions as core
from ..core.decisions import Decision
from ..core.events import Event, EvictionFailed, RestoreFailed
from .clock import Clock
from .guarded import OWN_TICKETS
from .guards import Guards
from .records import Record, Records

_MOVES_NOTHING = "the device moves nothing"


class Effects:
    """Carries out decisions; `tell` takes the outcome. `explain` is called for a session whose reason to wait changed."""

    def __init__(
        self,
        records: Records,
        guards: Guards,
        clock: Clock,
        tell: Callable[[Event], None],
        explain: Callable[[str, int], None],
        log: logging.Logger,
    ) -> None:
        self._records = records
        self._guards = guards
        self._clock = clock
        self._tell = tell
        self._explain = explain
        self._log = log

    def carry_out(self, decision: Decision) -> None:
        """One decision. A session whose peer has just gone hears nothing; that it is gone comes as an event."""
        session = getattr(self._records.by_core.get(getattr(decision, "session", "")), "guarded", None)
        if session is not None and not isinstance(decision, (core.ExplainWait, core.CountOut)):
            self._guards.carry_out(session, decision)
            return
        match decision:
            case core.GrantTurn():
                record = self._records.by_core.get(decision.session)
                if record is not None:
                    record.epoch = decision.epoch
                    record.touched = True
                _say(record, TurnGranted(epoch=decision.epoch, ticket=decision.ticket))
            case core.RevokeTurn():
                deadline = self._clock.wall() + decision.deadline_s
                _say(self._records.by_core.get(decision.session), TurnRevoked(epoch=decision.epoch, deadline=deadline))
            case core.ExplainWait():
                # A call that waits at a gate has no ticket of its guest's.
                self._explain(decision.session, decision.ticket if decision.ticket < OWN_TICKETS else 0)
            case core.StopTurn():
                # Without a guard nothing can be stopped in mid-iteration: the core takes the turn back in its books.
                self._log.info("Session %s came to no boundary in time (epoch %d)", decision.session, decision.epoch)
            case core.CountOut():
                self._log.info("Session %s was counted out (epoch %d)", decision.session, decision.epoch)
            case core.EvictSession():
                self._tell(EvictionFailed(decision.session, decision.move, _MOVES_NOTHING))
            case core.RestoreSession():
                self._tell(RestoreFailed(decision.session, decision.move, _MOVES_NOTHING))
            case _:
                self._log.error("Cannot carry out %r: no session here asks for memory before it takes it", decision)


def _say(record: Record | None, said: TurnGranted | TurnRevoked) -> None:
    if record is not None and record.connection is not None:
        record.connection.say(said)
