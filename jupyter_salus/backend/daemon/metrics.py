"""Counters of the backend: what it was told and decided, and how long the core took. Read by `ask metrics`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from ..core.decisions import Decision
from ..core.events import Event

#: Decisions whose times the quantiles are of.
KEPT = 4096


class Metrics:
    """Plain numbers by name; sampled by whoever asks."""

    def __init__(self) -> None:
        self._events: Counter[str] = Counter()
        self._decisions: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._seconds: deque[float] = deque(maxlen=KEPT)

    def note(self, event: Event, now: float, decisions: Sequence[Decision]) -> None:
        """An event was handled."""
        self._events[type(event).__name__] += 1
        for decision in decisions:
            self._decisions[type(decision).__name__] += 1

    def took(self, seconds: float) -> None:
        """The core took so long over an event."""
        self._seconds.append(seconds)

    def refused(self, code: str) -> None:
        """A peer was refused something."""
        self._refused[code] += 1

    def body(self, **gauges: float) -> dict[str, Any]:
        """The answer to `ask metrics`; `gauges` are figures of now."""
        times = sorted(self._seconds)
        return {
            **gauges,
            "events_total": self._events.total(),
            "decisions_total": self._decisions.total(),
            "turns_total": self._decisions["GrantTurn"],
            "revocations_total": self._decisions["RevokeTurn"],
            "evictions_total": self._events["SessionEvicted"],
            "restores_total": self._events["SessionRestored"],
            "leases_lost_total": self._events["LeaseLost"],
            "refusals_total": self._refused.total(),
            "decision_p50_s": times[len(times) // 2] if times else 0.0,
            "decision_p99_s": times[min(len(times) - 1, len(times) * 99 // 100)] if times else 0.0,
            "events": dict(self._events),
            "decisions": dict(self._decisions),
            "refusals": dict(self._refused),
        }
