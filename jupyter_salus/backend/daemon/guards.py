"""Guards: the connections of the library between frameworks and driver, one for each process that uses a GPU.

A guard belongs to the session that it names if its process is the kernel's, or came from it; a process that outlived its
kernel, or never had one, is a session of its own. What a guard says of itself is believed, whatever the books say: a backend
that came back learns the truth so. The end of its connection ends its part in the turn at once; its bytes stay counted until
the process is gone and the device lists it no more, or it comes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from ...errors import BadMessage, NotAllowed, NotPossible
from ...protocol.codec import Message
from ...protocol.guard import (
    ArenaReady,
    BlocksBack,
    BlocksOut,
    Error,
    Memory,
    MoveFailed,
    Note,
    Pong,
    RoomWanted,
    RoomWithdrawn,
    Touched,
    TurnDrained,
)
from ...protocol.messages import Hello
from ..core import decisions
from ..core.decisions import Decision
from ..devices import processes
from ..devices.base import Device
from . import lineage
from .clock import Clock
from .connections import Connection
from .errands import Errands
from .gates import Gates
from .guarded import Guard, Guarded
from .guests import Guests
from .peers import Watch, peer_pidfd
from .plain import plain
from .records import Record, Records
from .rooms import Rooms
from .transfers import Transfers

#: P is told again when it differs by so much while nobody has a turn.
STEP_BYTES = 1 << 20


class Guards:
    """Who comes, what they say, and who goes. `place()` names the device of a session that nobody announced."""

    def __init__(
        self,
        devices: Mapping[str, Device],
        records: Records,
        guests: Guests,
        gates: Gates,
        rooms: Rooms,
        transfers: Transfers,
        clock: Clock,
        place: Callable[[], str],
        log: logging.Logger,
    ) -> None:
        self._devices = devices
        self._records = records
        self._guests = guests
        self._gates = gates
        self._rooms = rooms
        self._transfers = transfers
        self._clock = clock
        self._place = place
        self._log = log
        self._of: dict[Connection, tuple[Guarded, Guard]] = {}
        self._nameless = 0
        self._errands = Errands("A context can't be looked for", log)
        #: What a context took on each device, as seen last: what the next one is expected to take.
        self._context_bytes: dict[str, int] = {}
        #: Called with a device and what of its use isn't from outside, as was thought.
        self.taken_over: Callable[[str, int], None] = lambda device, amount: None
        #: What each device said of each process last.
        self._listed_bytes: dict[str, Mapping[int, int]] = {}

    # ---- hello -----------------------------------------------------------------------------------------------------------

    def admit(self, connection: Connection, said: Hello) -> Record:
        """Whose guard says this hello. Raises `NotPossible` where no device is that guards help with, `NotAllowed`,
        `BadMessage`."""
        if not any(device.capabilities().moves for device in self._devices.values()):
            raise NotPossible(f"cannot take a guard: {', '.join(self._devices)} isn't a device that it could help with")
        if said.session is not None and (not 0 < len(said.session) <= 200 or plain(said.session) != said.session):
            raise BadMessage(
                "cannot take a guard's hello: its session is named by 1 to 200 characters that can be seen"
            )
        pid = connection.credentials.pid
        name = said.session
        if name is not None:
            record = self._records.by_session.get(name)
            if record is None:
                self._records.claims.claim(name, connection.owner)
                return self._made(name, connection, 0)
            if record.owner != connection.owner:
                raise NotAllowed(f"cannot use session {name}: it is somebody else's, this is {connection.owner.name}")
            over = record.pid > 0 and not processes.alive(record.pid)
            if not over and (pid <= 0 or not record.pid or lineage.belongs(pid, record.pid)):
                return record
        own = f"{name or 'process'}-{pid if pid > 0 else said.pid or 0}"
        known = self._records.by_session.get(own)
        if known is not None and known.owner != connection.owner:
            # Processes of two users' containers have the same numbers.
            own = f"{own}-{connection.owner.name}"
            known = self._records.by_session.get(own)
        if known is not None and known.owner == connection.owner:
            return known
        return self._made(own, connection, pid)

    def _made(self, name: str, connection: Connection, pid: int) -> Record:
        record = Record(name, connection.owner, 1, self._place(), self._clock.wall())
        record.launched = True
        if pid > 0:
            record.name = lineage.title(pid)
            record.pid = pid
        self._records.by_session[name] = record
        return record

    def open(self, connection: Connection, record: Record, said: Hello) -> None:
        """An admitted guard, welcomed already."""
        session = self._guests.guarded(record)
        pid = connection.credentials.pid
        if pid <= 0:
            # In a container whose processes aren't seen from here: told apart by what it says of itself.
            pid = -(said.pid or self._next_nameless())
        before = session.guards.get(pid)
        if before is not None and before.connection is not None:
            before.connection.drop("its guard came back on another connection")
            self._parted(session, before)
        guard = before if before is not None and not before.ended else Guard(pid)
        session.guards[pid] = guard
        guard.connection = connection
        self._of[connection] = (session, guard)
        guard.heard(said)
        if guard is not before and guard.here_bytes:
            # It had that before this backend knew of it, which counted it as a process outside.
            self.taken_over(record.device, guard.here_bytes)
        guard.context_bytes = guard.context_bytes or self._context_bytes.get(record.device, 0)
        guard.shut = said.gate != "open"
        if guard.watch is None and pid > 0:
            descriptor = peer_pidfd(connection.socket, pid)
            if descriptor is not None:
                guard.watch = Watch(descriptor, lambda: self._ended(session, guard))
        record.memory_mode = "blocks"
        record.touched = record.touched or guard.persistent_bytes > 0
        record.pids = tuple(dict.fromkeys((*(one for one in (record.pid,) if one), *session.guards)))
        # A guest that came to a new backend before its guards said nothing of what they hold.
        unknown = guard.persistent_bytes > 0 and session.told_bytes == 0 and record.epoch is None
        if record.core_id is None or record.leaving or not record.evictable or unknown:
            self._guests.open_guarded(record, holding=not guard.shut)
            self._counted(session)
            return
        self._gates.settle(session)
        self._counted(session)
        if record.epoch is None:
            session.last_epoch = max(session.last_epoch, said.epoch or 0)
            self._gates.stray(session, guard)
        elif session.closing is None:
            self._gates.touched(session, guard)

    def _next_nameless(self) -> int:
        self._nameless += 1
        return self._nameless

    # ---- words -----------------------------------------------------------------------------------------------------------

    def hear(self, connection: Connection, said: Message) -> None:
        """A guard's message. Raises what it is answered with."""
        found = self._of.get(connection)
        if found is None:
            return  # It is about to learn that its connection was replaced.
        session, guard = found
        match said:
            case Touched():
                self._gates.touched(session, guard)
            case TurnDrained():
                self._gates.drained(session, guard, said)
                self._counted(session)
                if not guard.context_bytes and guard.pid > 0:
                    self._look_for_context(session, guard)
            case RoomWanted():
                self._rooms.wanted(session, guard, said)
            case RoomWithdrawn():
                self._rooms.withdrawn(session, guard, said.ticket)
            case BlocksOut():
                self._transfers.out(session, guard, said)
                self._counted(session)
            case BlocksBack():
                self._transfers.back(session, guard, said)
                self._counted(session)
            case MoveFailed():
                if said.move or guard.moving:
                    self._transfers.failed(session, guard, said)
                    if said.code == "device_error" and session.move is None:
                        self._gates.broken(session, said.message)
                else:
                    self._gates.failed(session, guard, said)
            case Memory():
                guard.heard(said)
                self._counted(session)
            case Note():
                self._log.info("A guard of %s (pid %d): %s", session.record.session, guard.pid, said.message)
            case Error():
                self._log.warning("A guard of %s didn't understand: %s", session.record.session, said.message)
            case ArenaReady() | Pong():
                pass
            case _:
                raise BadMessage(f"cannot take a {said.kind} from a guard")

    def _counted(self, session: Guarded) -> None:
        """What the session holds may have changed."""
        record = session.record
        held = session.device_bytes
        session.peak_bytes = max(session.peak_bytes, held)
        resting = (
            record.epoch is None and session.closing is None and session.move is None and not session.evicted_bytes
        )
        if resting and abs(held - session.told_bytes) >= STEP_BYTES:
            self._gates.settle(session)

    def listed(self, device: str, amounts: Mapping[int, int]) -> None:
        """What the device itself says of each process: contexts are found by it, and that the bytes of the dead are free."""
        self._listed_bytes[device] = amounts
        for record in list(self._records.by_core.values()):
            session = record.guarded
            if session is not None and record.device != device:
                self._elsewhere(session, device, amounts)
            if session is None or record.device != device:
                continue
            resting = record.epoch is None and session.closing is None and session.move is None
            for guard in list(session.guards.values()):
                amount = amounts.get(guard.pid)
                if guard.ended and amount is None and guard.connection is None:
                    self._dropped(session, guard)
                elif amount is not None and resting and guard.connection is not None and not record.leaving:
                    self._context(guard, device, amount)
            if not record.leaving:
                self._counted(session)

    def _context(self, guard: Guard, device: str, amount: int) -> None:
        """A process's context is what the device shows beyond what its guard says. Both are of their own time."""
        seen = (amount, guard.here_bytes)
        if seen == guard.seen_bytes and amount > guard.here_bytes:
            guard.context_bytes = amount - guard.here_bytes
            self._context_bytes[device] = max(self._context_bytes.get(device, 0), guard.context_bytes)
        guard.seen_bytes = seen

    def _look_for_context(self, session: Guarded, guard: Guard) -> None:
        """Nothing runs in the process now, so that one look from outside shows what its context takes."""
        self._errands.begin(self._looked_for_context(session, guard, guard.here_bytes))

    async def _looked_for_context(self, session: Guarded, guard: Guard, here_bytes: int) -> None:
        device = session.record.device
        amount = (await asyncio.to_thread(self._devices[device].listed)).get(guard.pid)
        if amount is not None and guard.here_bytes == here_bytes and guard.connection is not None:
            guard.seen_bytes = (amount, here_bytes)
            self._context(guard, device, amount)
            if session.record.core_id is not None and not session.record.leaving:
                self._counted(session)

    def _elsewhere(self, session: Guarded, device: str, amounts: Mapping[int, int]) -> None:
        """Its processes use another device than the one that it began on: that is where it is from now on."""
        record = session.record
        resting = record.epoch is None and session.closing is None and session.move is None
        there = sum(amounts.get(guard.pid, 0) for guard in session.connected())
        here = sum(self._listed_bytes.get(record.device, {}).get(guard.pid, 0) for guard in session.connected())
        if resting and not record.leaving and there > here:
            record.device = device
            wanted = session.wants
            self._guests.open_guarded(record, holding=False)
            if wanted:
                self._gates.want(session)

    # ---- the end ---------------------------------------------------------------------------------------------------------

    def gone(self, connection: Connection) -> None:
        """A guard's connection is over."""
        found = self._of.pop(connection, None)
        if found is not None and found[1].connection is connection:
            self._parted(*found)
            self._last_gone(found[0])

    def _parted(self, session: Guarded, guard: Guard) -> None:
        connection, guard.connection = guard.connection, None
        if connection is not None:
            self._of.pop(connection, None)
        self._rooms.lost(session, guard)
        self._gates.lost(session, guard)
        self._transfers.lost(session, guard)

    def _ended(self, session: Guarded, guard: Guard) -> None:
        """Its process is gone, whatever copies of its socket are about."""
        guard.watch = None
        guard.ended = True
        if guard.connection is not None:
            guard.connection.end(now=True)
            self._parted(session, guard)
        self._transfers.gone(guard)
        self._last_gone(session)

    def _last_gone(self, session: Guarded) -> None:
        record = session.record
        if record.core_id is None or record.leaving:
            return
        if record.connection is None and not any(True for _ in session.connected()):
            self._guests.leave(record)

    def _dropped(self, session: Guarded, guard: Guard) -> None:
        """A guard that is gone, and whose bytes the device shows as free."""
        session.guards.pop(guard.pid, None)
        self._transfers.gone(guard)

    def closed(self, record: Record) -> None:
        """A session is closed: nobody speaks for it any more."""
        session = record.guarded
        if session is None:
            return
        if session.timer is not None:
            session.timer.cancel()
        for guard in list(session.guards.values()):
            if guard.watch is not None:
                guard.watch.close()
                guard.watch = None
            self._transfers.gone(guard)
            if guard.connection is not None:
                connection, guard.connection = guard.connection, None
                self._of.pop(connection, None)
                connection.end()
        session.guards.clear()

    def outlived(self, record: Record) -> None:
        """A kernel's process ended: those that came from it and live on come back as sessions of their own."""
        session = record.guarded
        if session is None:
            return
        for guard in list(session.guards.values()):
            if guard.pid != record.pid and not guard.ended and guard.connection is not None:
                connection = guard.connection
                self._parted(session, guard)
                if guard.watch is not None:
                    guard.watch.close()
                    guard.watch = None
                session.guards.pop(guard.pid, None)
                self._transfers.gone(guard)
                connection.end()
        record.pids = tuple(pid for pid in record.pids if pid == record.pid or pid in session.guards)

    # ---- decisions -------------------------------------------------------------------------------------------------------

    def carry_out(self, session: Guarded, decision: Decision) -> None:
        """A decision about a guarded session."""
        match decision:
            case decisions.GrantTurn():
                self._gates.granted(session, decision)
            case decisions.RevokeTurn():
                self._gates.revoke(session, decision)
            case decisions.StopTurn():
                self._gates.stop(session, decision)
            case decisions.SuspendTurn():
                self._gates.suspended(session, decision)
            case decisions.EvictSession():
                self._transfers.evict(session, decision)
            case decisions.RestoreSession():
                self._transfers.restore(session, decision)
            case decisions.GrantGrowth():
                self._rooms.granted(session, decision)
            case decisions.RefuseGrowth():
                self._rooms.refused(session, decision)
            case _:
                self._log.error("Cannot carry out %r for a guarded session", decision)

    def stop(self) -> None:
        """The backend ends: guards go on without it."""
        self._errands.stop()
        self._rooms.stop()
        self._transfers.stop()
