"""What a backend's journal says of waits and turns: its events played through the core again, with the decisions' times.

These are the times at which the backend heard, and for which it decided, by the machine's monotonic clock, which notebooks
log as well. A starved process makes what it says late, and not the order in which the backend answers what it has heard.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.config import Config
from jupyter_salus.backend.core.decisions import Decision, GrantTurn, RevokeTurn
from jupyter_salus.backend.core.events import Event
from jupyter_salus.backend.core.scheduler import Scheduler
from jupyter_salus.backend.daemon.journal import config_of, replay
from jupyter_salus.errors import SalusError


@dataclass
class Wait:
    """From a session's request until its grant; times are the backend's, in seconds."""

    session: str
    requested: float
    #: Who had the turn then.
    holder: str | None
    #: When that one was asked to pass it on, maybe before, for somebody else; None if it never was.
    revoked: float | None = None
    #: The turns that others got meanwhile, and the device time that each had had before.
    overtaken_by: list[tuple[str, float]] = field(default_factory=list)
    granted: float | None = None
    #: Device time that the session had had before.
    used_s: float = 0.0


class Timeline:
    """The journal at `path`, as far as it is written."""

    def __init__(self, path: Path) -> None:
        self.config: Config = config_of(path)
        self.handled: list[tuple[Event, float, list[Decision]]] = []
        scheduler = Scheduler(self.config)
        for event, now in replay(path):
            # A timer of a starved backend fires late; when the core wanted to be woken is what it decided.
            due = scheduler.next_deadline() if isinstance(event, events.DeadlineReached) else None
            try:
                decisions = list(scheduler.handle(event, now))
            except SalusError:
                continue  # what the backend refused, too
            self.handled.append((event, now if due is None else min(due, now), decisions))

    def waits(self) -> list[Wait]:
        """All waits, in the order of the requests."""
        found: list[Wait] = []
        open_waits: dict[str, Wait] = {}
        holder: str | None = None
        revoked: float | None = None
        since: dict[str, float] = {}
        used: dict[str, float] = {}
        for event, now, decisions in self.handled:
            wanting = _wanting(event)
            if isinstance(event, (events.TurnReleased, events.LeaseLost)) and event.session in since:
                used[event.session] = used.get(event.session, 0.0) + now - since.pop(event.session)
                if holder == event.session:
                    holder = revoked = None
            if wanting is not None:
                wait = Wait(wanting, now, holder, revoked, used_s=used.get(wanting, 0.0))
                open_waits[wanting] = wait
                found.append(wait)
            for decision in decisions:
                if isinstance(decision, RevokeTurn) and decision.session == holder:
                    revoked = now
                    for wait in open_waits.values():
                        if wait.holder == decision.session and wait.revoked is None:
                            wait.revoked = now
                elif isinstance(decision, GrantTurn):
                    holder, revoked, since[decision.session] = decision.session, None, now
                    granted = open_waits.pop(decision.session, None)
                    if granted is not None:
                        granted.granted = now
                    for wait in open_waits.values():
                        wait.overtaken_by.append((decision.session, used.get(decision.session, 0.0)))
        return found

    def lost(self, session: str) -> float | None:
        """When the backend saw that this session's kernel is gone; None if it didn't yet."""
        return next((now for event, now, _ in self._about(session) if isinstance(event, events.LeaseLost)), None)

    def granted_after(self, moment: float) -> float | None:
        """When the first turn was given at or after `moment`; None if none was yet."""
        for _, now, decisions in self.handled:
            if now >= moment and any(isinstance(one, GrantTurn) for one in decisions):
                return now
        return None

    def _about(self, session: str) -> Iterator[tuple[Event, float, list[Decision]]]:
        # A core session is an incarnation of the session that people see.
        return (one for one in self.handled if getattr(one[0], "session", "").startswith(session))


def _wanting(event: Event) -> str | None:
    if isinstance(event, events.TurnRequested):
        return event.session
    if isinstance(event, events.TurnReleased) and event.ticket is not None:
        return event.session
    return None


def timeline_at(path: Path, holds: Callable[[Timeline], bool], patience_s: float = 90.0) -> Timeline:
    """The timeline once it has what is waited for; a backend writes its journal once a second."""
    deadline = time.monotonic() + patience_s
    while True:
        made = Timeline(path)
        if holds(made):
            return made
        assert time.monotonic() < deadline, f"the journal {path} hasn't what was waited for"
        time.sleep(0.2)
