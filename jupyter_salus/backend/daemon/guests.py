"""What guests say, as events for the core. The connection is the lease: its end, or the process's, frees all turns at once."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...errors import BadMessage, BadValue
from ...protocol.codec import Message
from ...protocol.messages import (
    CellFinished,
    CellStarted,
    Hello,
    Interrupt,
    Progress,
    TurnReleased,
    TurnWanted,
    TurnWithdrawn,
)
from ..core import events as core
from ..core.events import Event, Profile
from ..devices import processes
from .clock import Clock
from .connections import Connection
from .gates import Gates
from .gauges import Gauges
from .guarded import Guarded
from .peers import Watch, peer_pidfd, pidfd
from .plain import plain
from .records import Record, Records

PRIORITIES = ("high", "normal", "low")


class Guests:
    """Opens, governs and closes sessions. `tell` gives the core an event; `profile` knows what earlier runs taught."""

    def __init__(
        self,
        records: Records,
        gauges: Gauges,
        clock: Clock,
        tell: Callable[[Event], None],
        profile: Callable[[Record], Profile | None],
        closed: Callable[[Record], None],
        log: logging.Logger,
    ) -> None:
        self._records = records
        self._gauges = gauges
        self._clock = clock
        self._tell = tell
        self._profile = profile
        self._closed = closed
        self._log = log
        self._of: dict[Connection, Record] = {}
        #: Set where the parts are put together: the turns of guarded sessions, and who is told of their end.
        self.gates: Gates | None = None
        self.outlived: Callable[[Record], None] = lambda record: None
        self.unguarded: Callable[[Record], None] = lambda record: None

    def admit(self, connection: Connection, said: Hello, device: str) -> Record:
        """Whose guest says this hello. Raises `BadMessage`, `BadValue`, `NotAllowed`; nothing has changed then."""
        if said.session is None or not 0 < len(said.session) <= 200 or plain(said.session) != said.session:
            raise BadMessage("cannot take a guest's hello without its session, of 1 to 200 characters that can be seen")
        if said.priority is not None and said.priority not in PRIORITIES:
            raise BadValue(
                f"cannot open session {said.session} with priority {said.priority!r}: {', '.join(PRIORITIES)}"
            )
        return self._records.greeted(
            said, said.session, connection.owner, connection.credentials.pid, device, self._clock.wall()
        )

    def open(self, connection: Connection, record: Record, said: Hello) -> None:
        """An admitted guest's session opens, or comes back on another connection."""
        if record.connection is not None:
            record.connection.drop("its guest came back on another connection")
            self._lease_lost(record)
        if record.core_id is not None and not record.leaving:
            self._attached(connection, record, said)
            return
        if record.core_id is not None:
            self._rejoined(record)
        self._attached(connection, record, said)
        self._opened(record, said.persistent_bytes, bool(said.holding))

    def guarded(self, record: Record) -> Guarded:
        """The guarded side of a session; it has one from now on."""
        if record.guarded is None:
            record.guarded = Guarded(record)
        return record.guarded

    def open_guarded(self, record: Record, holding: bool) -> None:
        """A session opens by what its guards say, or opens anew as one that can be moved."""
        session = self.guarded(record)
        cells, ticket = dict(record.cells), session.guest_ticket
        if record.core_id is not None:
            self._rejoined(record)
        record.launched, record.unmanaged_reason, record.leaving = True, None, False
        if record.connection is not None:
            record.cells.update(cells)
        self._opened(record, None, holding)
        if self.gates is not None and record.connection is not None and ticket is not None and record.epoch is None:
            session.guest_ticket = ticket
            self.gates.want(session, ticket)

    def leave(self, record: Record) -> None:
        """Nobody speaks for a session any more: its lease is over, its bytes leave."""
        self._leave(record)
        self.look(record)

    def hear(self, connection: Connection, said: Message) -> None:
        """A guest's message. Raises what the guest is answered with."""
        record = self._of.get(connection)
        if record is None or record.core_id is None:
            return  # It is about to learn that its connection was replaced.
        name = record.core_id
        match said:
            case CellStarted():
                if not record.cells:
                    self._tell(core.CellStarted(name))
                record.cells[said.cell] = plain(said.cell_id) if said.cell_id is not None else None
                if record.guarded is not None and self.gates is not None:
                    self.gates.cell_began(record.guarded)
            case CellFinished():
                known = record.cells.pop(said.cell, said) is not said
                if record.interrupted is not None and record.interrupted.answered(record.cells):
                    record.interrupted = None
                if known and not record.cells:
                    self._tell(core.CellFinished(name))
                    if record.guarded is not None and self.gates is not None:
                        self.gates.cells_ended(record.guarded)
            case TurnWanted() | TurnWithdrawn() | TurnReleased() if record.guarded is not None:
                self._turn_said(record.guarded, said)
            case TurnWanted():
                self._tell(core.TurnRequested(name, said.ticket, said.background, said.silent))
            case TurnWithdrawn():
                self._tell(core.TurnWithdrawn(name, said.ticket))
            case TurnReleased():
                self._released(record, name, said)
            case Progress():
                self._progressed(record, name, said)
            case _:
                raise BadMessage(f"cannot take a {said.kind} from a guest")

    def gone(self, connection: Connection) -> None:
        """A guest's connection is over."""
        record = self._of.pop(connection, None)
        if record is None or record.connection is not connection:
            return
        self._lease_lost(record)
        if not record.pid or not processes.alive(record.pid):
            self.look(record)

    def watch(self, record: Record, pid: int, descriptor: int | None) -> None:
        """Learn of the end of a session's process."""
        if record.watch is not None:
            record.watch.close()
            record.watch = None
        record.pid = pid
        if descriptor is not None:
            record.watch = Watch(descriptor, lambda: self._exited(record))

    def launched(self, record: Record, pid: int) -> None:
        """A server started the kernel's process; its guest has yet to come, or never will."""
        if record.core_id is None and record.pid == 0:
            self.watch(record, pid, pidfd(pid))

    def interrupt(self, record: Record) -> None:
        """Have the guest end the waits of all its threads."""
        if record.connection is not None:
            record.connection.say(Interrupt())
        if record.guarded is not None and self.gates is not None:
            self.gates.interrupt(record.guarded)

    def end(self, record: Record) -> None:
        """The server ended the kernel: the lease is over, whatever the process does."""
        if record.connection is not None:
            connection, record.connection = record.connection, None
            self._of.pop(connection, None)
            connection.end()
        if record.core_id is None:
            self._forget(record)
            return
        if not record.leaving:
            self._leave(record)
        self.look(record)

    def look(self, record: Record) -> None:
        """Close a session whose lease was lost if the device shows its bytes as free."""
        if record.core_id is not None and record.leaving and self._gauges.free(record):
            self._free(record)

    # ---- the ways of a record ------------------------------------------------------------------------------------------

    def _attached(self, connection: Connection, record: Record, said: Hello) -> None:
        self._of[connection] = record
        record.connection = connection
        record.launched, record.unmanaged_reason, record.leaving = True, None, False
        record.priority = said.priority or record.priority
        # One that came back may have had turns of an earlier backend's; an older guest doesn't tell.
        record.touched = record.touched or (said.key is not None if said.touched is None else said.touched)
        self.watch(record, connection.credentials.pid, peer_pidfd(connection.socket, connection.credentials.pid))

    def _opened(self, record: Record, said_bytes: int | None, holding: bool) -> None:
        held = self._gauges.opened(record, said_bytes)
        session = record.guarded
        record.evictable = session is not None
        out = 0
        if session is not None:
            held, out = session.device_bytes, session.evicted_bytes
            session.told_bytes = held
        name = self._records.entered(record)
        self._tell(
            core.SessionOpened(
                session=name,
                user=record.user,
                device=record.device,
                priority=record.priority,
                evictable=record.evictable,
                holding=holding and not out,
                persistent_bytes=held,
                profile=self._profile(record),
                out_bytes=out,
            )
        )
        if record.pinned:
            self._tell(core.PinChanged(name, True))

    def _rejoined(self, record: Record) -> None:
        """A guest that lost its connection came back while its process lived: its bytes pass to its new session."""
        if not record.leaving:
            self._leave(record)
        row = record.row
        for total in ("waited_s", "used_s", "iterations", "turns", "evictions"):
            record.carried[total] = float(row.get(total, 0))
        self._tell(core.BytesFreed(self._core_id(record)))
        self._records.left(record)

    def _lease_lost(self, record: Record) -> None:
        connection, record.connection = record.connection, None
        if connection is not None:
            self._of.pop(connection, None)
        if record.core_id is None or record.leaving:
            return
        session = record.guarded
        alive = record.pid <= 0 or processes.alive(record.pid)
        if session is not None and self.gates is not None and alive and any(True for _ in session.connected()):
            record.cells.clear()
            self.gates.guest_left(session)
        else:
            self._leave(record)

    def _leave(self, record: Record) -> None:
        record.leaving = True
        record.interrupted = None
        record.cells.clear()
        record.epoch = None
        if record.guarded is not None:
            record.guarded.end()
        # A kernel whose server is there and hasn't ended it may be restarting: its seat, credit and place are kept a while.
        server = record.server
        restarts = server is not None and server.open and not record.ended
        self._tell(core.LeaseLost(self._core_id(record), restarts=restarts))

    def _exited(self, record: Record) -> None:
        """The process of a session ended, whatever copies of its socket are about."""
        record.watch = None
        if record.core_id is None:
            self._forget(record)
            return
        self.outlived(record)
        if record.connection is not None:
            record.connection.end(now=True)
            self._lease_lost(record)
        elif not record.leaving:
            self._leave(record)
        self.look(record)

    def _free(self, record: Record) -> None:
        self._tell(core.BytesFreed(self._core_id(record)))
        self._forget(record)

    def _forget(self, record: Record) -> None:
        if record.watch is not None:
            record.watch.close()
            record.watch = None
        self.unguarded(record)
        self._closed(record)
        self._gauges.closed(record)
        self._records.removed(record)

    def _core_id(self, record: Record) -> str:
        assert record.core_id is not None
        return record.core_id

    # ---- turns -----------------------------------------------------------------------------------------------------------

    def _turn_said(self, session: Guarded, said: TurnWanted | TurnWithdrawn | TurnReleased) -> None:
        """A guest's part in the turn of a guarded session: the gates end it."""
        assert self.gates is not None, "guarded sessions are where gates are"
        match said:
            case TurnWanted():
                self.gates.guest_wants(session, said)
            case TurnWithdrawn():
                self.gates.guest_withdrew(session, said)
            case TurnReleased():
                if said.iterations is not None:
                    busy_s, remaining = _counted(said.iterations, said.busy_s, said.remaining)
                    name = self._core_id(session.record)
                    self._tell(core.IterationsFinished(name, said.epoch, said.iterations, busy_s, remaining))
                self.gates.guest_released(session, said)

    def _released(self, record: Record, name: str, said: TurnReleased) -> None:
        if said.wants_more and said.ticket is None:
            raise BadMessage("cannot take a turn_released that wants more without the ticket of the next wait")
        busy_s, remaining = _counted(said.iterations, said.busy_s, said.remaining)
        if said.epoch == record.epoch:
            record.epoch = None
            self._measured(record, said.resident_bytes, None)
        ticket = said.ticket if said.wants_more else None
        self._tell(
            core.TurnReleased(name, said.epoch, ticket, count=said.iterations, busy_s=busy_s, remaining=remaining)
        )

    def _progressed(self, record: Record, name: str, said: Progress) -> None:
        busy_s, remaining = _counted(said.iterations, said.busy_s, said.remaining)
        if said.frameworks is not None:
            record.frameworks = tuple(plain(str(one))[:40] for one in said.frameworks[:16])
        if said.epoch == record.epoch and record.guarded is None:
            self._measured(record, said.resident_bytes, said.peak_bytes)
        self._tell(core.IterationsFinished(name, said.epoch, said.iterations, busy_s, remaining))

    def _measured(self, record: Record, resident_bytes: int | None, peak_bytes: int | None) -> None:
        if resident_bytes is not None and resident_bytes >= 0:
            event = self._gauges.boundary(record, resident_bytes, peak_bytes)
            if event is not None:
                self._tell(event)


def _counted(iterations: int | None, busy_s: float | None, remaining: int | None) -> tuple[float, int | None]:
    """What is said of iterations, checked: the seconds that they took, and how many are to come. Raises `BadMessage`."""
    count, seconds = iterations or 0, busy_s or 0.0
    if count < 0 or seconds < 0:
        raise BadMessage(f"cannot count {count} iterations in {seconds:g} s: both are at least 0")
    return seconds, remaining if remaining is not None and remaining >= 0 else None
