"""What happened, in words: the journal as a person reads it.

Sessions that take turns in a lane would drown everything else: a run of hand-overs is one entry that counts them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ..core import decisions as decided
from ..core import events as core
from ..core.decisions import Decision
from ..core.events import Event
from ..core.reasons import COUNTED_OUT
from ..devices.size import bytes_text
from .chronicle import Chronicle, Mentioned
from .users import Owner

_NAMED = re.compile(r"\{session:([^}]*)\}")


class Words:
    """Makes sentences for the chronicle. `mentioned` tells what is known of a core session."""

    def __init__(self, chronicle: Chronicle, mentioned: Callable[[str], Mentioned]) -> None:
        self._chronicle = chronicle
        self._mentioned = mentioned

    def entries(self, viewer: Owner | None = None, users: bool = True) -> list[dict[str, Any]]:
        """Oldest first, as `viewer` may read them; None may know all. See `Entry.told`."""
        return [entry.told(viewer.key if viewer is not None else None, users) for entry in self._chronicle]

    def add(self, text: str, session: str | None = None) -> None:
        """Something that isn't an event of the core: the backend started, say. `{session:ID}` stands for a session."""
        self._append(text, session)

    def note(self, event: Event, now: float, decisions: Sequence[Decision]) -> None:
        """An event was handled."""
        text = self._event(event)
        if text is not None:
            self._append(text, getattr(event, "session", None))
        for decision in decisions:
            self._decision(decision)

    def _append(self, text: str, session: str | None, run: str | None = None) -> None:
        named = dict.fromkeys([*([] if session is None else [session]), *_NAMED.findall(text)])
        self._chronicle.add(text, {one: self._mentioned(one) for one in named}, run)

    def _decision(self, decision: Decision) -> None:
        match decision:
            case decided.GrantTurn(session=session, lane=lane):
                self._turn(session, lane)
            case decided.StopTurn(session=session):
                self._once(f"{_name(session)} came to no boundary in time and is to be stopped", session)
            case decided.CountOut(session=session):
                self._append(f"{_name(session)} {COUNTED_OUT}", session)
            case decided.SuspendTurn(session=session):
                self._append(f"{_name(session)} waits for memory that processes outside have", session)
            case decided.EvictSession(session=session, reason=reason):
                self._append(f"{_name(session)} is to be moved out: {reason}", session)
            case decided.RestoreSession(session=session):
                self._append(f"{_name(session)} is to come back", session)
            case decided.RefuseGrowth(session=session, message=message):
                self._append(f"{_name(session)} got no memory: {message}", session)
            case _:
                return

    def _once(self, text: str, session: str) -> None:
        """Something that is tried again and again."""
        last = self._chronicle.last
        if last is None or last.text != text:
            self._append(text, session)

    def _turn(self, session: str, lane: str) -> None:
        last = self._chronicle.last
        if last is None or last.run != lane:
            self._append(f"{_name(session)} got a turn in lane {lane}", session, run=lane)
            return
        last.count += 1
        last.about[session] = self._mentioned(session)
        names = [_name(one) for one in last.about]
        last.text = (
            f"{', '.join(names)} took turns in lane {lane}, {last.count} times, the last one {_name(session)}"
            if len(names) > 1
            else f"{names[0]} got {last.count} turns in lane {lane}"
        )
        self._chronicle.changed(last)

    def _event(self, event: Event) -> str | None:
        name = _name(getattr(event, "session", ""))
        match event:
            case core.SessionOpened(holding=holding, persistent_bytes=held):
                more = f", in its turn, with {bytes_text(held)}" if holding else ""
                return f"{name} is there, for {{user:{event.session}}}{more}"
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
            case core.DrainAsked(device=device, draining=True, reason=reason):
                return f"Device {device} is drained from now on" + (f": {reason}" if reason else "")
            case core.DrainAsked(device=device):
                return f"Device {device} isn't drained any more"
            case _:
                return None


def _name(session: str) -> str:
    """What stands for the notebook of a core session in a sentence."""
    return f"{{session:{session}}}"
