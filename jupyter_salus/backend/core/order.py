"""An ordered queue of sessions: sorted by a key that a policy gives, first come first among equals.

A sorted list: insertion and removal search by bisection and move memory in one block, which for 10,000 sessions takes
a few microseconds, less than a heap with lazy deletion costs once its dead entries are counted; and it can be read in
order from both ends, which a heap can't. The key of a session is remembered, so that it can change freely outside.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .session import Session

Key = tuple[float, ...]
Entry = tuple[Key, int, "Session"]


class Order:
    """Sessions in order. Entries compare by key, then by the session's number, which is unique."""

    __slots__ = ("_entries", "_of")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._of: dict[Session, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, session: Session) -> bool:
        return session in self._of

    def __iter__(self) -> Iterator[Session]:
        return (entry[2] for entry in self._entries)

    def __reversed__(self) -> Iterator[Session]:
        return (entry[2] for entry in reversed(self._entries))

    @property
    def entries(self) -> list[Entry]:
        """The entries in order, to be read only."""
        return self._entries

    def first(self) -> Session | None:
        """The session that comes first, if there is one."""
        return self._entries[0][2] if self._entries else None

    def last(self) -> Session | None:
        """The session that comes last, if there is one."""
        return self._entries[-1][2] if self._entries else None

    def key(self, session: Session) -> Key:
        """The key under which a session stands here."""
        return self._of[session][0]

    def put(self, session: Session, key: Key) -> None:
        """Put a session in, or move it to where its new key belongs."""
        old = self._of.get(session)
        if old is not None:
            if old[0] == key:
                return
            self._remove(old)
        entry = (key, session.number, session)
        self._of[session] = entry
        insort(self._entries, entry)

    def discard(self, session: Session) -> None:
        """Take a session out, if it is in."""
        entry = self._of.pop(session, None)
        if entry is not None:
            self._remove(entry)

    def since(self, key: Key) -> Session | None:
        """The first session whose key is `key` or later."""
        at = bisect_left(self._entries, (key,))
        return self._entries[at][2] if at < len(self._entries) else None

    def position(self, session: Session) -> int:
        """How many sessions come before this one."""
        return bisect_left(self._entries, self._of[session])

    def _remove(self, entry: Entry) -> None:
        del self._entries[bisect_left(self._entries, entry)]
