"""What the daemon knows of sessions beyond the core: names, tokens, processes, connections.

A session is named by its kernel's id, which stays the same when the kernel is restarted: each incarnation has a record of
its own. `by_session` has the newest of each session; `by_core` those that the core knows, under the name that it knows
them by, which differs from the session's id only while an earlier incarnation hasn't left yet.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import NotAllowed, UnknownSession
from ...protocol.messages import Announce, Hello
from .claims import Claims
from .connections import Connection
from .peers import Watch
from .plain import plain
from .unanswered import Unanswered
from .users import Owner

if TYPE_CHECKING:
    from .guarded import Guarded

#: Records of one user, sessions that are over and whose process is there included; beyond that announcements and hellos
#: are refused. All servers are told of each.
MAX_RECORDS = 2_000


@dataclass(slots=True, eq=False)
class Record:
    """One incarnation of a session."""

    session: str
    owner: Owner
    incarnation: int
    device: str
    started_at: float
    kernel_id: str | None = None
    name: str = ""
    path: str | None = None
    priority: str = "normal"
    pinned: bool = False
    #: What the announced kernel says in its first hello; spent by it.
    token: str | None = None
    #: What the guest says to come back.
    key: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    #: The name by which the core knows it; None while the core doesn't.
    core_id: str | None = None
    connection: Connection | None = None
    pid: int = 0
    watch: Watch | None = None
    #: All processes seen so far, the main one first.
    pids: tuple[int, ...] = ()
    launched: bool = False
    #: The server that spoke of it last, and since when neither it nor a process stands for the record.
    server: Connection | None = None
    forsaken_at: float | None = None
    unmanaged_reason: str | None = None
    leaving: bool = False
    #: The server said that it ended the kernel: it isn't restarting.
    ended: bool = False
    #: The turn that it was told it has.
    epoch: int | None = None
    #: It has used its device, or came back from where it may have.
    touched: bool = False
    cells: dict[int, str | None] = field(default_factory=dict)
    #: An interrupt that its cells go on after.
    interrupted: Unanswered | None = None
    frameworks: tuple[str, ...] = ()
    memory_mode: str = "host"
    #: Its guards, where it has some or is to have them; and whether the core knows that it can be moved.
    guarded: Guarded | None = None
    #: Why it has none although a GPU is here, as its server says.
    unguarded_reason: str | None = None
    evictable: bool = False
    #: Totals of times before a reconnection, which begins a new session in the core; added to what the core counts.
    carried: dict[str, float] = field(default_factory=dict)
    #: The row of the state that people saw last.
    row: dict[str, Any] = field(default_factory=dict)

    @property
    def user(self) -> str:
        """The owner's name."""
        return self.owner.name

    @property
    def cell_id(self) -> str | None:
        """The id of the cell that began last and is open still."""
        return next(reversed(self.cells.values()), None)

    @property
    def shown(self) -> bool:
        """Whether people see it: not before its kernel runs."""
        return self.launched or self.core_id is not None

    @property
    def counts(self) -> bool:
        """Whether the backend has to stay for it."""
        return not self.leaving


class Records:
    """All records. Raises `NotAllowed` where a peer names a session that isn't its own."""

    def __init__(self, claims: Claims | None = None) -> None:
        self.claims = claims if claims is not None else Claims(None, time.time, logging.getLogger(__name__))
        self.by_session: dict[str, Record] = {}
        self.by_core: dict[str, Record] = {}
        self._suffix = 0

    def __iter__(self) -> Iterator[Record]:
        """Every record, those of earlier incarnations that are leaving last."""
        yield from self.by_session.values()
        for record in self.by_core.values():
            if self.by_session.get(record.session) is not record:
                yield record

    def announced(self, said: Announce, owner: Owner, device: str, now: float) -> Record:
        """A kernel is about to be launched: its record, in place of an earlier incarnation's."""
        before = self._mine(said.session, owner)
        if before is not None and before.incarnation == said.incarnation:
            # Its server lost its connection, or the guest came first to a younger backend: known, and its token spent
            # once the session is open.
            before.kernel_id = plain(said.kernel_id) or before.kernel_id
            before.name = plain(said.name) or before.name
            before.path = plain(said.path) or before.path
            if before.core_id is None:
                before.token = said.token
            return before
        self._bounded(owner)
        record = Record(said.session, owner, said.incarnation, device, now)
        record.kernel_id = plain(said.kernel_id) or None
        record.name = plain(said.name) or (before.name if before else "")
        record.path = plain(said.path) or (before.path if before else None)
        record.priority = said.priority or (before.priority if before else "normal")
        record.pinned = before.pinned if before else False
        record.token = said.token
        self.by_session[said.session] = record
        return record

    def greeted(self, said: Hello, session: str, owner: Owner, pid: int, device: str, now: float) -> Record:
        """The record of a guest's hello, which may open its session: by its token, by its key, or, where no server
        announced it (the backend is younger than the kernel), by saying so. Raises `NotAllowed`."""
        known = self._mine(session, owner)
        if known is None:
            self._bounded(owner)
            known = Record(session, owner, said.incarnation or 1, device, now)
            self.by_session[session] = known
            self._described(known, said)
            return known
        if known.token is not None:
            # A server tells a younger backend again what it announced to an earlier one, and the guest has spent that.
            came_back = said.token is None and said.key is not None and said.incarnation == known.incarnation
            if not came_back and not hmac.compare_digest((said.token or "").encode(), known.token.encode()):
                raise NotAllowed(f"cannot open session {session}: the token isn't the one that its server announced")
            known.token = None
        elif not hmac.compare_digest((said.key or "").encode(), known.key.encode()) and (
            known.connection is not None or (known.pid and known.pid != pid)
        ):
            raise NotAllowed(
                f"cannot open session {session}: its token is spent, and the key isn't the one it was given"
            )
        self._described(known, said)
        return known

    def entered(self, record: Record) -> str:
        """Name a record for the core, which has none of it: its session's id, unless an earlier incarnation still has that."""
        name = record.session
        while name in self.by_core:
            self._suffix += 1
            name = f"{record.session}~{self._suffix}"
        self.by_core[name] = record
        record.core_id = name
        return name

    def left(self, record: Record) -> None:
        """The core doesn't have the record any more."""
        if record.core_id is not None:
            del self.by_core[record.core_id]
            record.core_id = None

    def removed(self, record: Record) -> None:
        """Forget a record whose process is gone."""
        self.left(record)
        if self.by_session.get(record.session) is record:
            del self.by_session[record.session]
            self.claims.keep(record.session, record.owner)

    def public_id(self, record: Record) -> str:
        """The name that people see: the session's, and one with its incarnation for an earlier one that is leaving."""
        if self.by_session.get(record.session) is record:
            return record.session
        return f"{record.session}~{record.incarnation}"

    def owner(self, public_id: str) -> Owner | None:
        """Whose session is shown under this name; None if it isn't there any more."""
        record = self.by_session.get(public_id)
        if record is not None:
            return record.owner
        return next((one.owner for one in self.by_core.values() if self.public_id(one) == public_id), None)

    def named(self, core_id: str, viewer: Owner | None = None, users: bool = True) -> str:
        """What the notebook of this core session is called, for a viewer; None: for one who may know all.

        Somebody else's is called after its owner if `users` may be named, and by nothing otherwise.
        """
        record = self.by_core.get(core_id)
        if record is None:
            return core_id
        if viewer is None or viewer == record.owner:
            return record.name or record.session
        return f"a notebook of {record.user}" if users else "another user's notebook"

    def found(self, session: str) -> Record:
        """The newest record of a session. Raises `UnknownSession`."""
        record = self.by_session.get(session)
        if record is None:
            raise UnknownSession(f"cannot find a session {session!r}: the backend has {len(self.by_session)} sessions")
        return record

    def _mine(self, session: str, owner: Owner) -> Record | None:
        known = self.by_session.get(session)
        if known is not None and known.owner != owner:
            raise NotAllowed(f"cannot use session {session!r}: it is somebody else's, this is {owner.name}")
        self.claims.claim(session, owner)
        return known

    def _bounded(self, owner: Owner) -> None:
        many = len(self.by_session) + len(self.by_core) >= MAX_RECORDS
        if many and sum(one.owner == owner for one in self) >= MAX_RECORDS:
            raise NotAllowed(f"cannot open another session: {owner.name} has {MAX_RECORDS}, the limit")

    def _described(self, record: Record, said: Hello) -> None:
        """What a guest says of itself counts where its server said nothing."""
        path = plain(said.path)
        record.kernel_id = record.kernel_id or plain(said.kernel_id) or None
        record.name = record.name or plain(said.name) or path.rpartition("/")[2]
        record.path = record.path or path or None
