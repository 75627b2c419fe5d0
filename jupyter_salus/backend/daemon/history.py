"""What sessions did, as far back as a bounded ring holds it: for the timeline."""

from __future__ import annotations

from collections import deque
from typing import Any

#: Entries kept; at four changes a second of one session, twenty minutes.
KEPT = 5000
_FIELDS = ("device", "lane", "state", "persistent_bytes", "ephemeral_bytes")


class History:
    """One entry for each changed row of a session in each revision."""

    def __init__(self, kept: int = KEPT) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=kept)
        self._dropped = 0

    def note(self, revision: int, at: float, row: dict[str, Any]) -> None:
        """A session's row changed. `at` is absolute."""
        if len(self._entries) == self._entries.maxlen:
            self._dropped = self._entries[0]["revision"]
        entry = {"revision": revision, "at": at, "session": row["id"]}
        self._entries.append({**entry, **{name: row[name] for name in _FIELDS}})

    def since(self, revision: int, now: int) -> dict[str, Any]:
        """The entries after `revision`; `complete` is False if some of them are gone. `now`: the current revision."""
        entries = [entry for entry in self._entries if entry["revision"] > revision]
        return {"revision": now, "since": revision, "complete": self._dropped <= revision, "entries": entries}
