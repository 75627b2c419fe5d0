"""The event pump: one event at a time into the core, its decisions out, a timer for its next deadline.

An effect may tell of an event while another one is being handled (a refused eviction, say): it waits for its turn.
Effects come first: a session waits for the message of its turn, nobody for the books. Those of the events that make up a
hand-over are kept in the loop's next round.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from ...errors import SalusError
from ..core.decisions import Decision
from ..core.events import DeadlineReached, Event, IterationsFinished, TurnReleased, TurnRequested
from ..core.scheduler import Scheduler
from .clock import Clock

#: Called after each event with it, its time and what was decided.
Observer = Callable[[Event, float, Sequence[Decision]], None]
#: Events that are frequent and hurried. None of them ends a session, so what the books say of it can be looked up later.
_HURRIED = (IterationsFinished, TurnReleased, TurnRequested, DeadlineReached)


class Loop:
    """Owns the scheduler. `debug`: check its invariants after each event, and end the process if they don't hold."""

    def __init__(self, scheduler: Scheduler, clock: Clock, log: logging.Logger, debug: bool = False) -> None:
        self.scheduler = scheduler
        self.clock = clock
        #: Called with each decision, in order.
        self.carry_out: Callable[[Decision], None] = _nothing
        self.observers: list[Observer] = []
        #: Called with the seconds that the core took over an event.
        self.took: Callable[[float], None] = _nothing
        self.broken = False
        self._stopped = False
        self._unbooked: list[tuple[Event, float, Sequence[Decision]]] = []
        self._log = log
        self._debug = debug
        self._waiting: deque[Event] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None

    def tell(self, event: Event) -> None:
        """Give the core an event and carry out what it decides. Raises the core's refusal of it (`SalusError`);
        told from within an effect, the event is handled afterwards, and its refusal is logged."""
        if self._busy:
            self._waiting.append(event)
            return
        self._busy = True
        try:
            self._handle(event)
        finally:
            self._rest()
            self._busy = False
            if not self._unbooked:
                self._arm()

    def stop(self) -> None:
        """No more deadlines; the books are complete."""
        self._stopped = True
        self._book()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rest(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            try:
                self._handle(event)
            except SalusError as error:
                self._log.warning("The core refused %r: %s", event, error)

    def _handle(self, event: Event) -> None:
        now = self.clock.now()
        decisions = self.scheduler.handle(event, now)
        self.took(self.clock.now() - now)
        for decision in decisions:
            self.carry_out(decision)
        self._unbooked.append((event, now, decisions))
        if not isinstance(event, _HURRIED):
            self._book()
        elif len(self._unbooked) == 1:
            asyncio.get_running_loop().call_soon(self._settle)
        if self._debug:
            self._check(event)

    def _settle(self) -> None:
        self._book()
        self._arm()

    def _book(self) -> None:
        unbooked, self._unbooked = self._unbooked, []
        for event, now, decisions in unbooked:
            for observer in self.observers:
                observer(event, now, decisions)

    def _check(self, event: Event) -> None:
        try:
            self.scheduler.check_invariants()
        except Exception:
            self.broken = True
            self._log.exception("The core's invariants don't hold after %r", event)
            raise

    def _arm(self) -> None:
        deadline = self.scheduler.next_deadline()
        if self._stopped or (deadline == self._deadline and self._timer is not None):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._deadline = deadline
        if deadline is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, deadline - self.clock.now()), self._reached)

    def _reached(self) -> None:
        self._timer = None
        self._deadline = None
        try:
            self.tell(DeadlineReached())
        except SalusError as error:
            self._log.warning("The core refused a deadline: %s", error)


def _nothing(_: object) -> None:
    """Stands in until the effects are there."""
