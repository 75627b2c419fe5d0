"""A user: what an admin lets them have, what their sessions have together, and their account on each device.

Users share a device first, and their sessions share what is their user's, so ten notebooks don't get ten shares. The
account of a user on a device says how many of the user's sessions want it, by weight; `fair` charges each of them by
that (see `policies.fair`), so that no order has to be rebuilt when one of them runs.

A *seat* is a session's place among those that a user may have open. A session whose kernel restarts keeps its seat for a
while, and comes back to it with the credit and the virtual time that it had.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .credit import Credit

if TYPE_CHECKING:
    from .session import Session


@dataclass(slots=True, eq=False)
class Limits:
    """What a user may have; None: as much as there is."""

    weight: float = 1.0
    max_priority: str = "high"
    max_sessions: int | None = None
    #: P on all devices together.
    persistent_bytes: int | None = None
    #: Host memory for what is moved out.
    host_bytes: int | None = None


@dataclass(slots=True, eq=False)
class Seat:
    """A place that is kept for a session whose kernel restarts."""

    number: int
    credit: Credit
    virtual_s: float


@dataclass(slots=True, eq=False)
class User:
    """One user, known from their first session or limits on."""

    name: str
    limits: Limits = field(default_factory=Limits)
    #: Open sessions, oldest first, and seats that are kept, by the session's id.
    sessions: dict[str, Session] = field(default_factory=dict)
    seats: dict[str, Seat] = field(default_factory=dict)
    #: Bytes that the ledgers have of all the user's sessions outside lanes, those that are leaving among them.
    held_bytes: int = 0
    #: Bytes in host memory, or on their way there.
    host_bytes: int = 0
    #: Its sessions grew past `limits.persistent_bytes`; others' go first.
    over: bool = False


class Account:
    """A user on one device."""

    __slots__ = ("credit", "sessions", "user", "virtual_s", "weight")

    def __init__(self, user: User, credit: Credit) -> None:
        self.user = user
        #: Short-cell credit of all the user's sessions together; it counts while several users want the device.
        self.credit = credit
        #: Sessions that want or have the device.
        self.sessions: dict[Session, None] = {}
        #: Sum of their weights.
        self.weight = 0.0
        #: The user's virtual time, which is the mean of the sessions', by weight.
        self.virtual_s = 0.0
