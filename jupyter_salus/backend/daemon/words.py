"""What happened, in words: the journal as a person reads it.

Sessions that take turns in a lane would drown everything else: a run of hand-overs is one entry that counts them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..core import decisions as decided
from ..core import events as core
from ..core.decisions import Decision
from ..core.events import Event
from ..devices.size import bytes_text
from .clock import Clock

KEPT = 2000


class Words:
    """A bounded ring of sentences. `named` gives the notebook of a core session, `public` the id that people know."""

    def __init__(
        self, clock: Clock, named: Callable[[str], str], public: Callable[[str], str], kept: int = KEPT
    ) -> None:
        self._clock = clock
        self._named = named
        self._public = public
        self._entries: deque[dict[str, Any]] = deque(maxlen=kept)

    def entries(self) -> list[dict[str, Any]]:
        """Oldest first: `at` (absolute), `session` or None, `text`."""
        return [{name: entry[name] for name in ("at", "session", "text")} for entry in self._entries]

    def add(self, text: str, session: str | None = None) -> None:
        """Something that isn't an event of the core: the backend started, say."""
        self._append(text, self._public(session) if session is not None else None)

    def note(self, event: Event, now: float, decisions: Sequence[Decision]) -> None:
        """An event was handled."""
        text = self._event(event)
        if text is not None:
            self._append(text, self._public(getattr(event, "session", "")) if hasattr(event, "session") else None)
        for decision in decisions:
            self._decision(decision)

    def _append(self, text: str, session: str | None, turn: str | None = None) -> None:
        self._entries.append({"at": self._clock.wall(), "session": session, "text": text, "turn": turn, "count": 1})

    def _decision(self, decision: Decision) -> None:
        match decision:
            case decided.GrantTurn(session=session, lane=lane):
                self._turn(session, lane)
            case decided.StopTurn(session=session):
                self._append(f"{self._named(session)} reached no boundary in time", self._public(session))
            case decided.EvictSession(session=session, reason=reason):
                self._append(f"{self._named(session)} is to be moved out: {reason}", self._public(session))
            case decided.RestoreSession(session=session):
                self._append(f"{self._named(session)} is to come back", self._public(session))
            case decided.RefuseGrowth(session=session, message=message):
                self._append(f"{self._named(session)} got no memory: {message}", self._public(session))
            case _:
                return

    def _turn(self, session: str, lane: str) -> None:
        last = self._entries[-1] if self._entries else None
        if last is not None and last["turn"] == lane:
            last["count"] += 1
            last["at"] = self._clock.wall()
            last["session"] = None
            last["text"] = (
                f"Sessions took turns in lane {lane}, {last['count']} times, the last one {self._named(session)}"
            )
        else:
            self._append(f"{self._named(session)} got a turn in lane {lane}", self._public(session), turn=lane)

    def _event(self, event: Event) -> str | None:
        name = self._named(getattr(event, "session", ""))
        match event:
            case core.SessionOpened(holding=holding, persistent_bytes=held):
                more = f", in its turn, with {bytes_text(held)}" if holding else ""
                return f"{name} is there, for {event.user}{more}"
            case core.LeaseLost():
                return f"{name} is gone; its turn and its waits ended"
            case core.BytesFreed():
                return f"The memory of {name} is free"
            case core.SessionBroken(message=message):
                return f"{name} can't use its device any more: {message}"
            case core.SessionEvicted(freed_bytes=freed, seconds=seconds):
                return f"{name} was moved out: {bytes_text(freed)} in {seconds:.2g} s"
            case core.SessionRestored(seconds=seconds):
                return f"{name} came back in {seconds:.2g} s"
            case core.EvictionFailed(reason=reason):
                return f"{name} couldn't be moved out: {reason}"
            case core.RestoreFailed(reason=reason):
                return f"{name} couldn't come back: {reason}"
            case core.TurnWithdrawn():
                return f"{name} waits no more: its wait was ended"
            case core.PriorityChanged(priority=priority):
                return f"{name} has priority {priority} now"
            case core.PinChanged(pinned=pinned):
                return f"{name} is {'pinned' if pinned else 'no longer pinned'}"
            case core.YieldAsked():
                return f"{name} was asked to pass its turn on"
            case core.EvictAsked():
                return f"{name} was asked to move out"
            case core.RestoreAsked():
                return f"{name} was asked to come back"
            case core.PolicyChanged(device=device, policy=policy):
                return f"Device {device} has policy {policy} now"
            case _:
                return None
