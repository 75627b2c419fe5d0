"""What a policy is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..session import Session

Key = tuple[float, ...]


class Policy(Protocol):
    """An order over sessions. Keys of waiting sessions must not change with the time alone."""

    @property
    def name(self) -> str:
        """Its name on the wire."""
        ...

    @property
    def preempts(self) -> bool:
        """Whether an arrival that comes first ends a turn at the next boundary, without waiting for the quantum's end."""
        ...

    @property
    def keeps_room(self) -> bool:
        """Whether one that comes first and doesn't fit beside those inside their quantum has their room kept for it."""
        ...

    def rotates_s(self, session: Session) -> float | None:
        """After how many seconds of running the session may have moved back in the order; None: never by itself."""
        ...

    @property
    def pays(self) -> float:
        """By what part the total speed must rise for one more lane."""
        ...

    @property
    def max_wait_s(self) -> float:
        """The bound on waits for a turn."""
        ...

    def key(self, session: Session, now: float) -> Key:
        """The place of a session in the order, the smallest first."""
        ...

    def arrived(self, session: Session) -> None:
        """A session that wanted nothing wants a turn now."""
        ...

    def charge(self, session: Session, seconds: float) -> None:
        """A session had the device for so long."""
        ...
