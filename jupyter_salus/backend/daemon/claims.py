"""Whose a session's id is, for a while after its end: kernels restart under the id that they had, and so do backends.

Everybody reads everybody's ids in the state. Without this, whoever is quicker than a kernel that restarts, or than the guests
that come back to a backend which was restarted, has the id, and its owner's kernel is turned away as somebody else's.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from ...errors import NotAllowed
from .users import Owner

#: Seconds for which an id is kept after its session's end.
KEPT_S = 600.0
#: Seconds between two writes at least for the sake of sessions that live.
RENEWED_S = 60.0
#: Ids of one owner; the oldest go first.
KEPT = 5000


class Claims:
    """Written by `save`, whole and at once. `wall`: absolute time, since it goes on while no backend runs; `path`: None where
    nothing is to be kept. A file that is lost or damaged protects nobody, and harms nobody."""

    def __init__(self, path: Path | None, wall: Callable[[], float], log: logging.Logger) -> None:
        self._path = path
        self._wall = wall
        self._log = log
        #: The owner's key and until when, by id; those claimed last are last.
        self._claims = _loaded(path, log)
        self._of: Counter[str] = Counter(key for key, _ in self._claims.values())
        self._changed = False
        self._renewed_at = wall()

    def claim(self, session: str, owner: Owner) -> None:
        """The id is this owner's from now on, and for a while. Raises `NotAllowed` if it is somebody else's still."""
        key, until = self._claims.get(session, (owner.key, 0.0))
        if key != owner.key and self._wall() < until:
            raise NotAllowed(
                f"cannot use session {session!r}: it was somebody else's a moment ago, this is {owner.name}"
            )
        self.keep(session, owner)

    def keep(self, session: str, owner: Owner) -> None:
        """As `claim`, of a session that was this owner's until now."""
        self._drop(session)
        if self._of[owner.key] >= KEPT:
            self._drop(next(id for id, (of, _) in self._claims.items() if of == owner.key))
        self._claims[session] = (owner.key, self._wall() + KEPT_S)
        self._of[owner.key] += 1
        self._changed = True

    def save(self, living: Iterable[tuple[str, Owner]]) -> None:
        """Write the file if something changed. `living`: the sessions that there are, whose ids stay their owners'. A failure
        is logged, and tried again with the next change."""
        now = self._wall()
        if not self._changed and now - self._renewed_at < RENEWED_S:
            return
        for session, owner in living:
            if session in self._claims:
                self._claims[session] = (owner.key, now + KEPT_S)
        for session in [id for id, (_, until) in self._claims.items() if until <= now]:
            self._drop(session)
        self._changed, self._renewed_at = False, now
        if self._path is None:
            return
        made = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                json.dump(self._claims, file, separators=(",", ":"))
            made.replace(self._path)
        except OSError as error:
            self._log.warning("Whose sessions are can't be kept in %s: %s", self._path, error)

    def _drop(self, session: str) -> None:
        known = self._claims.pop(session, None)
        if known is not None:
            self._of[known[0]] -= 1


def _loaded(path: Path | None, log: logging.Logger) -> dict[str, tuple[str, float]]:
    if path is None:
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
        return {str(session): (str(key), float(until)) for session, (key, until) in content.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        log.warning("Whose sessions were in %s can't be read: %s", path, error)
        return {}
