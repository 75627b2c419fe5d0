"""What is kept between runs: a profile for each notebook, and the priority and pin of sessions that live.

One small JSON file in the state directory. It may be lost or damaged without harm: then nothing is known, as at first.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from ..core.events import Profile

#: Notebooks and sessions kept; those not seen for longest go first.
KEPT = 2000
#: Runs of a notebook whose lengths are kept.
DURATIONS = 5
_VERSION = 1


class Profiles:
    """Read once; written by `save`, whole and at once, so that a reader finds the old or the new file."""

    def __init__(self, path: Path, log: logging.Logger) -> None:
        self._path = path
        self._log = log
        self._changed = False
        self._notebooks, self._sessions = _loaded(path, log)

    def profile(self, owner: str, notebook: str | None) -> Profile | None:
        """What earlier runs of this notebook taught, or None."""
        entry = self._notebooks.get(f"{owner}:{notebook}") if notebook else None
        if entry is None:
            return None
        return Profile(
            # P is measured from the first moment; what an earlier run held says nothing of this one yet.
            ephemeral_bytes=_whole(entry.get("ephemeral_bytes")),
            iteration_s=_positive(entry.get("iteration_s")),
            durations_s=tuple(one for one in map(_positive, entry.get("durations_s", ())) if one is not None),
        )

    def learn(self, owner: str, notebook: str | None, row: dict[str, Any]) -> None:
        """A run of this notebook ended, with this row of the state. One without a turn teaches nothing."""
        if not notebook or not row.get("turns"):
            return
        before = self._notebooks.pop(f"{owner}:{notebook}", {})
        lengths = (
            [*before.get("durations_s", ()), row["used_s"]] if row["used_s"] > 0 else before.get("durations_s", ())
        )
        self._notebooks[f"{owner}:{notebook}"] = {
            "ephemeral_bytes": row["peak_ephemeral_bytes"],
            "iteration_s": row["used_s"] / row["iterations"] if row["iterations"] else before.get("iteration_s"),
            "durations_s": list(lengths)[-DURATIONS:],
        }
        self._bound(self._notebooks)

    def wishes(self, owner: str, session: str) -> tuple[str, bool] | None:
        """Priority and pin that somebody gave this session while an earlier backend ran."""
        entry = self._sessions.get(f"{owner}:{session}")
        if entry is None or entry.get("priority") not in ("high", "normal", "low"):
            return None
        return entry["priority"], entry.get("pinned") is True

    def wish(self, owner: str, session: str, priority: str, pinned: bool) -> None:
        """Somebody gave a session a priority or pin: kept at once, since the backend may be killed."""
        self._sessions.pop(f"{owner}:{session}", None)
        self._sessions[f"{owner}:{session}"] = {"priority": priority, "pinned": pinned}
        self._bound(self._sessions)
        self.save()

    def save(self) -> None:
        """Write the file if something changed; a failure is logged, and tried again with the next change."""
        if not self._changed:
            return
        self._changed = False
        made = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        content = {"profiles": _VERSION, "notebooks": self._notebooks, "sessions": self._sessions}
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                json.dump(content, file, separators=(",", ":"))
            made.replace(self._path)
        except OSError as error:
            self._log.warning("The profiles can't be kept in %s: %s", self._path, error)

    def _bound(self, entries: dict[str, Any]) -> None:
        self._changed = True
        while len(entries) > KEPT:
            del entries[next(iter(entries))]


def _loaded(path: Path, log: logging.Logger) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["profiles"] != _VERSION:
            return {}, {}
        return _entries(content["notebooks"]), _entries(content["sessions"])
    except FileNotFoundError:
        return {}, {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("The profiles in %s can't be read and begin anew: %s", path, error)
        return {}, {}


def _entries(found: Any) -> dict[str, Any]:
    return {str(name): entry for name, entry in found.items() if isinstance(entry, dict)}


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _positive(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and value > 0 else None
