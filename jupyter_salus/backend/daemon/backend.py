"""The backend put together: who hears which message, and what follows from each event.

Reads as the list of its parts.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import BadMessage, BadValue, NotAllowed, NotPossible, ProtocolMismatch
from ...protocol.address import Address
from ...protocol.codec import PROTOCOL, Message, shared_protocol
from ...protocol.messages import (
    Act,
    Announce,
    Answer,
    Ask,
    CellFinished,
    CellStarted,
    Describe,
    Done,
    Ended,
    Hello,
    Interrupt,
    Launched,
    Ping,
    Pong,
    Progress,
    Subscribe,
    Welcome,
)
from ...protocol.version import VERSION
from ..core.config import Config
from ..core.decisions import Decision
from ..core.events import DeadlineReached, Event, IterationsFinished, PolicyChanged
from ..core.scheduler import Scheduler
from ..devices.base import Device
from .admin import Admin
from .bypass import Bypass
from .chronicle import Chronicle, Mentioned
from .claims import Claims
from .clock import SystemClock
from .connections import Connection
from .effects import Effects
from .feed import Feed
from .gates import Gates
from .gauges import Gauges
from .guards import Guards
from .guests import Guests
from .history import History
from .host_memory import HostMemory, budget
from .journal import Journal
from .lineage import has_guard
from .listening import Listening
from .loop import Loop
from .members import Members
from .metrics import Metrics
from .placement import Placement
from .powers import powers
from .profiles import Profiles
from .records import Record, Records
from .rooms import Rooms
from .sampling import Sampling
from .servers import Servers
from .shares import Shares
from .transfers import Transfers
from .users import ALONE, Door, Sharing
from .verbs import Verbs
from .words import Words

ROLES = ("guest", "guard", "server", "client")
#: Connections at once, of one user and of all.
MAX_CONNECTIONS_OF_USER, MAX_CONNECTIONS = 4096, 16384
FLUSH_S = 1.0


class Backend:
    """One backend at one address. `serve` runs until `stop` is called. Raises what `Listening` does."""

    def __init__(
        self,
        address: Address,
        devices: Sequence[Device],
        state: Path,
        clock: SystemClock,
        log: logging.Logger,
        config: Config | None = None,
        policy: str = "fair",
        exit_when_idle_s: float = 0.0,
        debug: bool = False,
        host_memory_bytes: int | None = None,
        sharing: Sharing = ALONE,
    ) -> None:
        self.log = log
        self.clock = clock
        self.policy = policy
        self.devices = {device.id: device for device in devices}
        self.exit_when_idle_s = exit_when_idle_s
        config = config if config is not None else Config()
        self.sharing = sharing
        self.listening = Listening(address, sharing)
        self.started_at = clock.wall()
        self.connections: set[Connection] = set()
        self.records = Records(Claims(state / journal_name(address, "claims"), clock.wall, log))
        self.loop = Loop(Scheduler(config), clock, log, debug)
        self.gauges = Gauges(self.devices, clock)
        self.profiles = Profiles(state / "profiles.json", log)
        self.journal = Journal(state / journal_name(address), config, secrets.token_hex(8))
        self.chronicle = Chronicle(clock, state / journal_name(address, "words"))
        self.words = Words(self.chronicle, self._mentioned)
        members = Members(state / journal_name(address, "members"), log)
        self.shares = Shares(sharing.limits, members, self.records, clock.now, self.loop.tell, log)
        self.bypass = Bypass(self.records, lambda: self.connections, clock.wall, sharing.alert, log)
        self.admin = Admin(self.shares, self.listening, lambda: self.connections, log)
        self.metrics = Metrics()
        self.history = History()
        self.feed = Feed(
            self.loop.scheduler, self.records, self.devices, clock, self.history, self._row, sharing.names_told
        )
        self.guests = Guests(self.records, self.gauges, clock, self.loop.tell, self._profile, self._closed, log)
        self.sampling = Sampling(
            self.devices,
            self.records,
            self.gauges,
            clock,
            self.loop.tell,
            self.guests.look,
            self._listed,
            log,
        )
        self.placement = Placement(self.devices, self.records, self.gauges, self.sampling)
        self.servers = Servers(
            self.records, self.guests, clock, self.placement.device, self.feed.touch, self.shares.seat, self.shares.left
        )
        self.verbs = Verbs(self.records, self.devices, self.profiles, self.shares, self.loop.tell, self._retire)
        self.guards = self._guarding(config, budget(host_memory_bytes))
        effects = Effects(self.records, self.guards, clock, self.loop.tell, self.feed.explain, log)
        self.loop.carry_out = effects.carry_out
        self.loop.took = self.metrics.took
        self.loop.observers += [self.journal.note, self.words.note, self.metrics.note, self._touched]
        self._stopping = asyncio.Event()
        self._idle_since: float | None = clock.now()
        self._journal_fails = False
        self._stood_s = 0.0

    def _guarding(self, config: Config, host_memory_bytes: int) -> Guards:
        """The parts that speak with guards, put together."""
        tell, clock, log, look = self.loop.tell, self.clock, self.log, self.sampling.look_at
        rooms = Rooms(
            self.devices, self.records, clock, self.loop.scheduler.may_hold, self._free_bytes, tell, look, log
        )
        gates = Gates(config, clock, rooms, tell, self._note, log)
        rooms.want_turn, rooms.unwanted, rooms.names_told = gates.want, gates.unwanted, self.sharing.names_told
        rooms.limit_of = lambda user: self.shares.of(user).persistent_bytes
        self.gauges.claims = rooms.claims
        transfers = Transfers(self.devices, gates, HostMemory(host_memory_bytes), tell, look, log)
        guards = Guards(
            self.devices,
            self.records,
            self.guests,
            gates,
            rooms,
            transfers,
            clock,
            self.placement.device,
            log,
        )
        self.guests.gates, self.guests.outlived, self.guests.unguarded = gates, guards.outlived, guards.closed
        guards.taken_over = self.sampling.taken_over
        return guards

    def _free_bytes(self, device: str) -> int:
        rows = self.loop.scheduler.snapshot(self.clock.now()).devices
        return next((row.free_bytes for row in rows if row.id == device), 0)

    def _listed(self, device: str, amounts: Mapping[int, int]) -> None:
        self.guards.listed(device, amounts)
        self.bypass.listed(device, amounts)

    def _note(self, core_id: str, text: str) -> None:
        """Something about a session that no event of the core says."""
        self.words.add(f"{self.records.named(core_id)} {text}", core_id)

    async def serve(self, ready: Callable[[], None]) -> None:
        """Listen, call `ready`, and run until stopped. The order of the end: no new peers, no peers, the rest written."""
        self.sampling.first()
        if self.policy != "fair":
            for id in self.devices:
                self.loop.tell(PolicyChanged(id, self.policy))
        await self.listening.start(self._connected)
        self.admin.open_doors()
        names = ", ".join(device.name for device in self.devices.values())
        self.words.add(f"The backend started: version {VERSION}, pid {os.getpid()}, {names}")
        self.log.info("Serving %s with pid %d, version %s", self.listening.address.path, os.getpid(), VERSION)
        tasks = [asyncio.create_task(self._guarded(self.sampling.run())), asyncio.create_task(self._tidy())]
        try:
            ready()
            await self._stopping.wait()
        finally:
            self.listening.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._part()
            self.guards.stop()
            self.loop.stop()
            self.feed.stop()
            self.words.add("The backend ended")
            self._write()
            self.journal.close()
            self.profiles.save()
            self.listening.release()

    def stop(self) -> None:
        """Have `serve` return."""
        self._stopping.set()

    # ---- peers ---------------------------------------------------------------------------------------------------------

    def welcome(self, connection: Connection, hello: Hello) -> None:
        """A peer's hello. Raises what it is refused with."""
        version = shared_protocol(hello.protocol)
        if version is None:
            raise ProtocolMismatch(
                f"cannot speak with version {hello.version}: it speaks protocol {list(hello.protocol)[:4]}, "
                f"this backend {list(PROTOCOL)} (version {VERSION}, pid {os.getpid()})",
                {"protocol": list(PROTOCOL), "version": VERSION},
            )
        if hello.role not in ROLES:
            raise BadValue(f"cannot welcome a peer of role {hello.role[:80]!r}: {', '.join(ROLES)} are known")
        if hello.role == "guard":
            self._welcome_guard(connection, hello, version)
            return
        if hello.role != "guest":
            connection.say(Welcome(version, VERSION, os.getpid()))
            return
        if hello.key is None and hello.session is not None:
            self.shares.admit(connection.owner, hello.session)
        record = self.guests.admit(connection, hello, self.placement.device())
        wishes = self.profiles.wishes(record.owner.key, record.session)
        if wishes is not None and record.core_id is None:
            record.priority, record.pinned = wishes
        self.shares.opening(record)
        record.memory_mode = self._memory_mode(record, connection, hello)
        connection.say(Welcome(version, VERSION, os.getpid(), key=record.key, memory_mode=record.memory_mode))
        self.guests.open(connection, record, hello)
        self.feed.touch()

    def _welcome_guard(self, connection: Connection, hello: Hello, version: int) -> None:
        record = self.guards.admit(connection, hello)
        seatless = self.shares.seat(connection.owner, record.session) if record.core_id is None else None
        if seatless is not None:
            # Its kernel runs without turns, and so do its processes.
            raise NotPossible(seatless)
        if record.core_id is None:
            self.shares.opening(record)
        connection.say(Welcome(version, VERSION, os.getpid()))
        self.guards.open(connection, record, hello)
        self.feed.touch()

    def _memory_mode(self, record: Record, connection: Connection, hello: Hello) -> str:
        """How a guest's session is governed: where a guard is preloaded, by it; else from outside alone."""
        can = self.devices[record.device].capabilities()
        if not can.moves:
            return can.memory_mode
        guarded = hello.guarded if hello.guarded is not None else has_guard(connection.credentials.pid)
        if guarded or record.guarded is not None:
            self.guests.guarded(record)
            return "blocks"
        return can.memory_mode

    def hear(self, connection: Connection, said: Message) -> None:
        """A message after the hello. Raises what the peer is answered with."""
        match said:
            case Ping():
                connection.say(Pong())
            case Act(verb=verb) if verb in self.admin.VERBS:
                connection.say(Done(said.request, self.admin.act(connection, said)))
                self.feed.touch()
            case Act():
                self.verbs.act(connection, said)
                self.feed.touch()
                connection.say(Done(said.request, self._acted(connection, said)))
            case Ask():
                connection.say(Answer(said.request, self._asked(connection, said)))
            case Subscribe():
                connection.say(Done(said.request))
                self.feed.subscribe(connection)
            case _ if connection.role == "guard":
                self.guards.hear(connection, said)
            case _ if connection.role == "guest":
                self.guests.hear(connection, said)
                if isinstance(said, (CellStarted, CellFinished)) or (isinstance(said, Progress) and said.frameworks):
                    self.feed.touch()
            case Announce() | Launched() | Describe() | Ended() | Interrupt():
                self._server_said(connection, said)
            case _:
                raise BadMessage(f"cannot take a {said.kind} from a {connection.role}")

    def gone(self, connection: Connection) -> None:
        """A connection is over."""
        self.connections.discard(connection)
        self.feed.unsubscribe(connection)
        self.guests.gone(connection)
        self.guards.gone(connection)

    def refused(self, code: str) -> None:
        """A peer was refused something."""
        self.metrics.refused(code)

    def _server_said(self, connection: Connection, said: Announce | Launched | Describe | Ended | Interrupt) -> None:
        if connection.role != "server":
            raise NotAllowed(f"cannot take a {said.kind} from a {connection.role}: servers say it")
        match said:
            case Announce():
                full = self.servers.announce(connection, said)
                connection.say(Done(said.request, self._announced(said.session, full)))
                return
            case Launched():
                self.servers.launched(connection, said)
            case Describe():
                self.servers.describe(connection, said)
            case Ended():
                self.servers.ended(connection, said)
            case Interrupt():
                self.servers.interrupt(connection, said)
                return
        connection.say(Done(said.request))

    def _announced(self, session: str, full: str | None) -> dict[str, Any] | None:
        """What a server is told of the kernel that it announced."""
        if full is not None:
            return {"unmanaged": full}
        told = self.placement.told(self.records.found(session).device)
        return told if told["uuid"] is not None else None

    def _connected(self, door: Door) -> Connection:
        connection = Connection(self, door, self.clock.now, self.log)
        self.connections.add(connection)
        return connection

    def admit(self, connection: Connection) -> None:
        """Before anything is read of a peer. Raises `NotPossible` if there are too many."""
        owner = connection.owner
        if len(self.connections) > MAX_CONNECTIONS:
            raise NotPossible(f"cannot take another connection: there are {MAX_CONNECTIONS}, the limit")
        if sum(one.owner == owner for one in self.connections) > MAX_CONNECTIONS_OF_USER:
            raise NotPossible(
                f"cannot take another connection of {owner.name}: there are {MAX_CONNECTIONS_OF_USER}, the limit"
            )

    # ---- questions -------------------------------------------------------------------------------------------------------

    def _asked(self, connection: Connection, said: Ask) -> dict[str, Any]:
        match said.what:
            case "state":
                return self.feed.state(connection)
            case "history":
                self.feed.refresh()
                return self.history.since(said.since or 0, self.feed.revision)
            case "journal":
                reader = None if connection.admin else connection.owner
                entries = self.words.entries(reader, self.sharing.names_told)
                return {"path": str(self.journal.path), "entries": entries}
            case "users":
                self.feed.refresh()
                rows = self.shares.rows(None if connection.admin else connection.owner.name)
                return {"users": [{**row, "unmanaged_bytes": self.bypass.bytes_of(row["name"])} for row in rows]}
            case "about":
                viewer = None if connection.admin else connection.owner
                about = {"powers": powers().text, "shared": self.sharing.everybody, "unseen_peers": self._unseen()}
                return {**about, "unmanaged": self.bypass.rows(viewer)}
            case "metrics":
                return self.metrics.body(
                    sessions=len(self.records.by_core),
                    connections=len(self.connections),
                    uptime_s=self.clock.wall() - self.started_at,
                    revision=self.feed.revision,
                )
            case _:
                raise BadValue(
                    f"cannot answer {said.what[:80]!r}: state, history, journal, metrics, users and about can be asked for"
                )

    def _acted(self, connection: Connection, said: Act) -> dict[str, Any] | None:
        """The row that the verb was about, as it is now."""
        if said.verb == "retire":
            return None
        if said.verb in ("policy", "drain"):
            return {"device": self.feed.row(connection, "devices", said.target)}
        return {"session": self.feed.row(connection, "sessions", said.target)}

    def _row(self) -> dict[str, Any]:
        healthy = self.sampling.healthy and not self.loop.broken
        return {"version": VERSION, "pid": os.getpid(), "healthy": healthy, "started_at": self.started_at}

    def _public(self, core_id: str) -> str:
        record = self.records.by_core.get(core_id)
        return self.records.public_id(record) if record is not None else core_id

    def _mentioned(self, core_id: str) -> Mentioned:
        record = self.records.by_core.get(core_id)
        if record is None:
            return Mentioned(core_id, core_id, "", "nobody")
        owner = record.owner
        return Mentioned(self.records.public_id(record), self.records.named(core_id), owner.key, owner.name)

    def _unseen(self) -> int:
        """Peers in pid namespaces that this process doesn't see: their processes' ends and memory aren't known."""
        return sum(one.credentials.pid == 0 for one in self.connections)

    # ---- what goes on by itself --------------------------------------------------------------------------------------------

    def _touched(self, event: Event, now: float, decisions: Sequence[Decision]) -> None:
        # Iterations are totals, and a deadline without a decision changed nothing: neither is worth a look.
        if decisions or not isinstance(event, (IterationsFinished, DeadlineReached)):
            self.feed.touch()

    def _profile(self, record: Record) -> Any:
        return self.profiles.profile(record.owner.key, record.path)

    def _closed(self, record: Record) -> None:
        self.shares.closed(record)
        self.profiles.learn(record.owner.key, record.path, record.row)
        self.feed.touch()

    def _retire(self) -> None:
        staying = sum(record.counts for record in self.records)
        if staying:
            raise NotPossible(f"cannot end: {staying} sessions are there", {"sessions": staying})
        self.log.info("Making way for another backend")
        self.stop()

    async def _guarded(self, work: Any) -> None:
        """A fault of ours in a task ends the backend: guests go on without it, and its successor learns from them."""
        try:
            await work
        except Exception:
            self.log.exception("The backend ends by a fault of its own")
            self.stop()

    async def _tidy(self) -> None:
        """Once a second: read the clock, write the journal, and see whether anybody is there still."""
        while True:
            await asyncio.sleep(FLUSH_S)
            now = self.clock.now()
            self._stood()
            self._write()
            self.servers.forget_forsaken(self.connections)
            self.shares.look()
            self.admin.open_doors()
            if any(record.counts for record in self.records) or any(one.role == "server" for one in self.connections):
                # A server that runs would start the next one at once.
                self._idle_since = None
            elif self._idle_since is None:
                self._idle_since = now
                self.profiles.save()
            elif self.exit_when_idle_s and now - self._idle_since >= self.exit_when_idle_s:
                self.log.info("Ending: no session for %g s", self.exit_when_idle_s)
                self.stop()
            if self.loop.broken:
                self.stop()

    def _stood(self) -> None:
        """Tell of a time in which the backend didn't run, once it is over."""
        stood_s, self._stood_s = self.clock.stood_s - self._stood_s, self.clock.stood_s
        if stood_s > 0.0:
            self.words.add(f"The backend didn't run for {stood_s:.1f} s; nobody is charged for that time")
            self.log.warning("The backend didn't run for %.1f s", stood_s)

    def _write(self) -> None:
        self.records.claims.save((record.session, record.owner) for record in self.records)
        try:
            self.journal.flush()
            self.chronicle.flush()
        except OSError as error:
            if not self._journal_fails:
                self.log.warning("The journal can't be written at %s: %s", self.journal.path, error)
            self._journal_fails = True
        else:
            self._journal_fails = False

    async def _part(self) -> None:
        """End all connections, and wait until they have ended."""
        for connection in list(self.connections):
            connection.end()
        for _ in range(50):
            if not self.connections:
                return
            await asyncio.sleep(0.02)
        for connection in list(self.connections):
            connection.end(now=True)
        await asyncio.sleep(0)


def journal_name(address: Address, what: str = "journal") -> str:
    """Backends of several addresses share a state directory, and neither a journal nor its `words`."""
    if address.kind == "own":
        return f"{what}.jsonl"
    return f"{what}-{hashlib.sha256(address.path.encode()).hexdigest()[:12]}.jsonl"
