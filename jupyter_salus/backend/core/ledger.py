"""The ledger of a device: who owns which bytes, and the one inequality that always holds.

SAFE: held by sessions (P of residents, bytes of moves and of leaving peers) + sizes of lanes + E of stopped sessions
+ foreign use + reserve ≤ capacity. `take_*` refuses what would break it (`LedgerOverdrawn`, nothing changed), so that
a decision that forgot to look is found at once. `observe_*` books what the device shows to be so already: growth that
nobody could ask for (the host device, plain sessions, foreign processes) may overdraw the ledger; then nothing is given
out until enough came back.
"""

from __future__ import annotations

from ...errors import LedgerOverdrawn


class Ledger:
    """The bytes of one device, as sums. Who owns them stands with sessions and lanes; the invariants compare both."""

    __slots__ = (
        "capacity",
        "changes",
        "device",
        "foreign",
        "held",
        "lanes",
        "least",
        "limit",
        "overdrawn_to",
        "reserve",
        "stopped",
    )

    def __init__(self, device: str, capacity: int, foreign: int, reserve: int) -> None:
        self.device = device
        self.held = 0
        self.lanes = 0
        self.stopped = 0
        #: Grows with every booking, even of nothing: whoever watches who is where looks again only then.
        self.changes = 0
        #: What lanes can't do without now: the needs of their holders.
        self.least = 0
        #: What was given when it was last overdrawn from outside; nothing of ours may go beyond.
        self.overdrawn_to = 0
        self.capacity = self.foreign = self.reserve = self.limit = 0
        self.observe_device(capacity, foreign, reserve)

    @property
    def given(self) -> int:
        """Bytes that sessions and lanes have."""
        return self.held + self.lanes + self.stopped

    @property
    def free(self) -> int:
        """Bytes that can be given out; below 0 when the ledger is overdrawn."""
        return self.limit - self.held - self.lanes - self.stopped

    def observe_device(self, capacity: int, foreign: int, reserve: int) -> None:
        """The device's own figures."""
        self.capacity, self.foreign, self.reserve = capacity, foreign, reserve
        #: What sessions may have together.
        self.limit = capacity - foreign - reserve
        self._note()

    def take_held(self, amount: int) -> None:
        """Give bytes to a session, or take them back (below 0)."""
        self._check(amount)
        self.held += amount
        self.changes += 1

    def take_lanes(self, amount: int) -> None:
        """Make lanes larger by so many bytes, or smaller."""
        self._check(amount)
        self.lanes += amount
        self.changes += 1

    def observe_held(self, amount: int) -> None:
        """A session's bytes are so many more than was known."""
        self.held += amount
        self._note()

    def observe_lanes(self, amount: int) -> None:
        """A lane's members need so many bytes more than was known."""
        self.lanes += amount
        self._note()

    def observe_stopped(self, amount: int) -> None:
        """A session outside any lane holds so many ephemeral bytes (they were in its lane before)."""
        self.stopped += amount
        self._note()

    def _note(self) -> None:
        self.changes += 1
        if self.given > self.limit:
            self.overdrawn_to = self.given

    def _check(self, amount: int) -> None:
        if amount > 0 and amount > self.free:
            raise LedgerOverdrawn(f"cannot give {amount} bytes of device {self.device}: {self.free} are free")
