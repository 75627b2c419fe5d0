"""A lane: a share of a device's ephemeral memory, and the sessions that take turns in it.

Its size is the largest E of its members, so it shrinks by itself when the largest one leaves or needs less. Only
the holder uses the memory; every other member is at a boundary, where its E is empty. Members can therefore come and go
at no cost as long as SAFE holds, which is why lanes merge, split, widen and shrink without a byte being copied.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from ...errors import IllegalTransition

if TYPE_CHECKING:
    from .ledger import Ledger
    from .session import Session


class Lane:
    """One lane of one device. All changes of its size go through the ledger."""

    __slots__ = ("_ledger", "_members", "_unused", "device", "holder", "id", "number")

    def __init__(self, number: int, device: str, ledger: Ledger, unused: dict[str, Lane]) -> None:
        self.id = f"{device}/{number}"
        self.number = number
        self.device = device
        self.holder: Session | None = None
        self._ledger = ledger
        #: The lanes of the device in which nobody runs, this one among them while that is so.
        self._unused = unused
        unused[self.id] = self
        #: (E, number of the session, session), so the last one is the largest.
        self._members: list[tuple[int, int, Session]] = []

    @property
    def size(self) -> int:
        """Bytes of the lane: the largest E of its members."""
        return self._members[-1][0] if self._members else 0

    @property
    def least(self) -> int:
        """Bytes that the lane can't do without now: its holder's E."""
        return self.holder.lane_bytes if self.holder is not None else 0

    @property
    def members(self) -> list[Session]:
        """Members by E, smallest first."""
        return [entry[2] for entry in self._members]

    @property
    def largest(self) -> Session | None:
        """The member that makes the lane as large as it is."""
        return self._members[-1][2] if self._members else None

    def __len__(self) -> int:
        return len(self._members)

    def add(self, session: Session, need: int, *, observed: bool = False) -> None:
        """Make a session a member that needs `need` bytes. Raises `LedgerOverdrawn` and changes nothing if it doesn't fit.

        `observed`: it goes on whether or not there is room.
        """
        if session.lane is not None:
            raise IllegalTransition(
                f"cannot add session {session.id} to lane {self.id}: it is in lane {session.lane.id}"
            )
        if observed:
            self._ledger.observe_lanes(max(need - self.size, 0))
        else:
            self._ledger.take_lanes(max(need - self.size, 0))
        insort(self._members, (need, session.number, session))
        session.lane = self
        session.lane_bytes = need

    def remove(self, session: Session) -> None:
        """Let a member go; the lane shrinks if it was the largest. Raises `IllegalTransition` for the holder."""
        if session is self.holder:
            raise IllegalTransition(f"cannot take session {session.id} out of lane {self.id}: it holds the lane")
        before = self.size
        del self._members[bisect_left(self._members, (session.lane_bytes, session.number, session))]
        self._ledger.take_lanes(self.size - before)
        session.lane = None
        session.lane_bytes = 0

    def hold(self, session: Session) -> None:
        """A member runs in the lane from now on."""
        self.holder = session
        self._ledger.least += session.lane_bytes
        del self._unused[self.id]

    def let_go(self) -> None:
        """Nobody runs in the lane any more."""
        if self.holder is not None:
            self._ledger.least -= self.holder.lane_bytes
            self.holder = None
            self._unused[self.id] = self

    def close(self) -> None:
        """The lane is no more; it has no members."""
        del self._unused[self.id]

    def resize(self, session: Session, need: int, *, observed: bool = False) -> None:
        """A member needs more or less than before. `observed`: it has it already, whether or not there was room."""
        before = self.size
        entry = (session.lane_bytes, session.number, session)
        at = bisect_left(self._members, entry)
        after = max(need, self._members[-1][0] if at < len(self._members) - 1 else (self._members[-2][0] if at else 0))
        if observed:
            self._ledger.observe_lanes(after - before)
        else:
            self._ledger.take_lanes(after - before)
        del self._members[at]
        insort(self._members, (need, session.number, session))
        if session is self.holder:
            self._ledger.least += need - session.lane_bytes
        session.lane_bytes = need
