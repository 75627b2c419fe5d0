"""What servers say of the kernels that they start: announced, launched, renamed, ended, interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container

from ...errors import BadMessage, BadValue, NotAllowed, UnknownSession
from ...protocol.messages import Announce, Describe, Ended, Interrupt, Launched
from .clock import Clock
from .connections import Connection
from .guests import PRIORITIES, Guests
from .lineage import belongs
from .plain import plain
from .records import Record, Records
from .unanswered import SHOWN_S, Unanswered
from .users import Owner

#: A server that lost its connection comes back and tells of its kernels again well within so many seconds.
FORSAKEN_S = 60.0


class Servers:
    """`touch()` is called when the state may have changed without an event of the core; `seat(owner, session)` says why
    another session can't be, if it can't; `left(owner, session)` is told that one that isn't there won't come back;
    `place()` names the device where the next one begins."""

    def __init__(
        self,
        records: Records,
        guests: Guests,
        clock: Clock,
        place: Callable[[], str],
        touch: Callable[[], None],
        seat: Callable[[Owner, str], str | None] = lambda owner, session: None,
        left: Callable[[Owner, str], None] = lambda owner, session: None,
    ) -> None:
        self._records = records
        self._guests = guests
        self._clock = clock
        self._place = place
        self._touch = touch
        self._seat = seat
        self._left = left

    def announce(self, connection: Connection, said: Announce) -> str | None:
        """A kernel is about to be launched; why it can't have a seat, if so. Raises `BadMessage`, `BadValue`, `NotAllowed`."""
        if not 0 < len(said.session) <= 200 or not 8 <= len(said.token) <= 200 or plain(said.session) != said.session:
            raise BadMessage(
                "cannot announce a session without an id of 1 to 200 characters that can be seen, and a token of 8 to 200"
            )
        if said.priority is not None and said.priority not in PRIORITIES:
            raise BadValue(f"cannot announce {said.session} with priority {said.priority!r}: {', '.join(PRIORITIES)}")
        before = self._records.by_session.get(said.session)
        full = self._seat(connection.owner, said.session)
        record = self._records.announced(said, connection.owner, self._place(), self._clock.wall())
        if before is not None and before is not record and before.core_id is None:
            self._guests.end(before)
            self._records.by_session[said.session] = record
        record.server = connection
        # It is shown with the reason, and gets the next seat that is free: its guest asks again by itself.
        record.unmanaged_reason = full
        self._touch()
        return full

    def launched(self, connection: Connection, said: Launched) -> None:
        """The announced kernel's process runs. Raises `UnknownSession`, `NotAllowed`."""
        record = self._own(connection, said.session)
        if record.core_id is None:
            record.launched = True
            record.unmanaged_reason = plain(said.unmanaged) or record.unmanaged_reason
        record.unguarded_reason = plain(said.unguarded) or None
        above = connection.credentials.pid
        # A process that isn't below the server's isn't its kernel: a number from within a container, or somebody else's.
        if said.pid is not None and said.pid > 0 and above > 0 and belongs(said.pid, above):
            self._guests.launched(record, said.pid)
        self._touch()

    def describe(self, connection: Connection, said: Describe) -> None:
        """The notebook was renamed or moved. Raises `UnknownSession`, `NotAllowed`."""
        record = self._own(connection, said.session)
        record.name, record.path = plain(said.name), plain(said.path) or None
        self._touch()

    def ended(self, connection: Connection, said: Ended) -> None:
        """The kernel was ended, or never started. Raises `NotAllowed`; a session that isn't there is ended already."""
        try:
            record = self._own(connection, said.session)
        except UnknownSession:
            self._left(connection.owner, said.session)
            return
        record.ended = True
        self._guests.end(record)
        self._touch()

    def interrupt(self, connection: Connection, said: Interrupt) -> None:
        """Somebody interrupts the kernel. Raises `BadMessage`, `UnknownSession`, `NotAllowed`."""
        if said.session is None:
            raise BadMessage("cannot interrupt without the session")
        record = self._own(connection, said.session)
        self._guests.interrupt(record)
        if record.cells and record.interrupted is None:
            record.interrupted = pending = Unanswered(record.cells)
            asyncio.get_running_loop().call_later(SHOWN_S, self._unanswered, record, pending)

    def _unanswered(self, record: Record, pending: Unanswered) -> None:
        if record.interrupted is pending:
            pending.shown = True
            self._touch()

    def forget_forsaken(self, connections: Container[Connection]) -> None:
        """Forget kernels that were announced by a server that is gone, and that no process is known of: nobody will say
        that they ended. Called once a second."""
        now = self._clock.now()
        for record in list(self._records.by_session.values()):
            if record.core_id is not None or record.watch is not None or record.server in connections:
                record.forsaken_at = None
            elif record.forsaken_at is None:
                record.forsaken_at = now
            elif now - record.forsaken_at >= FORSAKEN_S:
                self._guests.end(record)
                self._touch()

    def _own(self, connection: Connection, session: str) -> Record:
        record = self._records.found(session)
        if record.owner != connection.owner:
            raise NotAllowed(f"cannot use session {session}: it is somebody else's, this is {connection.owner.name}")
        return record
