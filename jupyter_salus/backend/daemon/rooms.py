"""Room for guarded sessions: what a process may hold before it asks, and what becomes of its requests.

A gate opens with what the session's books allow; beyond that the guard asks, one request of a session at a time goes to the
core, and the answer comes when room was made. A request that the driver refused although the books had room means that the
device is fuller than they know: it is measured again first, and after a few refusals in a row nobody is moved any more
for a request that can't succeed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from ...errors import SalusError
from ...protocol.guard import RoomGranted, RoomRefused, RoomWanted
from ..core import decisions
from ..core import events as core
from ..core.events import Event
from ..devices.base import Device
from .clock import Clock
from .errands import Errands
from .guarded import Growth, Guard, Guarded, Request
from .records import Records
from .state import with_names

#: How often in a row the driver may refuse what the books have room for, and after how long that begins anew.
REFUSALS, REFUSED_S = 3, 2.0


class Rooms:
    """`may_hold(session)`: what the core's books allow it on its device; `free(device)`: what they have for anybody.
    `look(device)` measures the device again."""

    def __init__(
        self,
        devices: Mapping[str, Device],
        records: Records,
        clock: Clock,
        may_hold: Callable[[str], int],
        free: Callable[[str], int],
        tell: Callable[[Event], None],
        look: Callable[[str], Awaitable[bool]],
        log: logging.Logger,
    ) -> None:
        self._devices = devices
        self._records = records
        self._clock = clock
        self._may_hold = may_hold
        self._free = free
        self._tell = tell
        self._look = look
        self._log = log
        self._number = 0
        self._errands = Errands("A request for room can't be seen to", log)
        #: Whether users may read each other's names.
        self.names_told = True
        #: The most that a user may hold on devices, None where nobody limited it.
        self.limit_of: Callable[[str], int | None] = lambda user: None
        #: Asks for a turn for a session that waits for room without one; looks whether one is wanted still.
        self.want_turn: Callable[[Guarded], None] = lambda session: None
        self.unwanted: Callable[[Guarded], None] = lambda session: None

    def share(self, session: Guarded, guard: Guard) -> int:
        """What a guard may hold on the device now: what it holds, and what the session may have beyond that, unless
        another of its processes was given it."""
        others = sum(
            max(one.granted_bytes - one.here_bytes, 0)
            for one in session.connected()
            if one is not guard and not one.shut
        )
        return guard.here_bytes + max(self._slack(session) - others, 0)

    def claims(self, session: Guarded) -> dict[int, int]:
        """What the books have of a session, by process: what it holds, and what it may take yet in its turn."""
        claims = {guard.pid: guard.device_bytes for guard in session.guards.values()}
        first = next(iter(session.connected()), None)
        if first is not None and session.record.epoch is not None:
            claims[first.pid] += self._slack(session)
        return claims

    def once(self, session: Guarded, guard: Guard) -> int:
        """What a guard may hold for the one call that an interrupt lets pass without a turn."""
        return guard.here_bytes + self._free(session.record.device)

    def figures(self, session: Guarded) -> tuple[int | None, int]:
        """What the session is told of its device: the most that it has, or that its user may have, where that isn't the
        driver's own figure, and what idle ones could give up for it."""
        device = session.record.device
        idle = sum(
            guard.movable_bytes
            for record in self._records.by_core.values()
            if record.guarded not in (None, session) and record.device == device and record.epoch is None
            for guard in record.guarded.connected()
            if not guard.wants
        )
        limits = (self._devices[device].shown_bytes(), self.limit_of(session.record.user))
        return min((one for one in limits if one is not None), default=None), idle

    def _slack(self, session: Guarded) -> int:
        core_id = session.record.core_id
        allowed = self._may_hold(core_id) if core_id is not None else 0
        return max(allowed - session.device_bytes, 0)

    def wanted(self, session: Guarded, guard: Guard, said: RoomWanted) -> None:
        """A thread waits for room."""
        guard.heard(said)
        guard.requests[said.ticket] = Request(max(said.bytes, 1), said.what[:40])
        passes = session.passes_until
        if session.record.epoch is None and passes is not None and self._clock.now() < passes:
            # It is of a call that an interrupt let pass: that one is to end now.
            self._refuse(
                guard, said.ticket, "cannot give memory in an interrupted call: it waits for its session's turn"
            )
        self.pump(session)

    def withdrawn(self, session: Guarded, guard: Guard, ticket: int) -> None:
        """It waits no more."""
        guard.requests.pop(ticket, None)
        growth = session.growth
        if growth is not None and growth.guard is guard and growth.ticket == ticket:
            session.growth = None
            if session.record.core_id is not None and not session.record.leaving:
                self._said(core.GrowthWithdrawn(session.record.core_id, growth.number))
        self.pump(session)
        self.unwanted(session)

    def lost(self, session: Guarded, guard: Guard) -> None:
        """A guard's connection is over, and its waits with it."""
        for ticket in list(guard.requests):
            self.withdrawn(session, guard, ticket)

    def pump(self, session: Guarded) -> None:
        """See to the next request, if none is under way."""
        record = session.record
        if session.growth is not None or record.core_id is None or record.leaving:
            return
        found = next(((guard, *one) for guard in session.connected() for one in guard.requests.items()), None)
        if found is None:
            return
        guard, ticket, request = found
        if record.epoch is None:
            self.want_turn(session)
            return
        if session.closing is not None or request.looking:
            return
        slack = self._slack(session)
        if request.bytes <= guard.granted_bytes - guard.here_bytes or request.what not in ("block", "handle"):
            self._errands.begin(self._refused(session, guard, ticket, request))
        elif request.bytes <= slack:
            self._grant(session, guard, ticket)
            self.pump(session)
        else:
            self._ask(session, guard, ticket, request.bytes - slack)

    def granted(self, session: Guarded, decision: decisions.GrantGrowth) -> None:
        """The core made room."""
        growth = session.growth
        if growth is not None and growth.number == decision.request:
            session.growth = None
            self._grant(session, growth.guard, growth.ticket)
            self.pump(session)

    def refused(self, session: Guarded, decision: decisions.RefuseGrowth) -> None:
        """The core can't make room."""
        growth = session.growth
        if growth is not None and growth.number == decision.request:
            session.growth = None
            owner = session.record.owner
            # Who holds what, by the names that this session's owner may read.
            text = with_names(decision.message, lambda core_id: self._records.named(core_id, owner, self.names_told))
            self._refuse(growth.guard, growth.ticket, text)
            self.pump(session)

    def stop(self) -> None:
        """Look at nothing any more."""
        self._errands.stop()

    def _ask(self, session: Guarded, guard: Guard, ticket: int, extra_bytes: int) -> None:
        core_id = session.record.core_id
        assert core_id is not None, "asked for by `pump` alone"
        self._number += 1
        session.growth = Growth(self._number, guard, ticket)
        try:
            self._tell(core.GrowthAsked(core_id, self._number, extra_bytes))
        except SalusError as error:
            session.growth = None
            self._refuse(guard, ticket, error.message)

    def _grant(self, session: Guarded, guard: Guard, ticket: int) -> None:
        request = guard.requests.pop(ticket, None)
        if request is None or guard.connection is None:
            return
        guard.granted_bytes = max(self.share(session, guard), guard.here_bytes + request.bytes)
        guard.connection.say(RoomGranted(ticket, guard.granted_bytes))

    def _refuse(self, guard: Guard, ticket: int, message: str) -> None:
        if guard.requests.pop(ticket, None) is not None and guard.connection is not None:
            guard.connection.say(RoomRefused(ticket, message[:400]))

    async def _refused(self, session: Guarded, guard: Guard, ticket: int, request: Request) -> None:
        """The driver refused what the books have room for: see how full the device is, and ask for what is missing."""
        record = session.record
        now, kind = self._clock.now(), (request.what, request.bytes)
        again = guard.refused == kind and now - guard.refused_at < REFUSED_S
        guard.refused, guard.refused_at = kind, now
        guard.refusals = guard.refusals + 1 if again else 1
        if guard.refusals > REFUSALS:
            self._refuse(
                guard, ticket, f"cannot give {request.bytes} more bytes: {record.device} has no such piece free"
            )
            self.pump(session)
            return
        request.looking = True
        await self._look(record.device)
        free = await asyncio.to_thread(self._devices[record.device].free_bytes)
        request.looking = False
        if guard.requests.get(ticket) is not request:
            return
        if record.epoch is None or session.closing is not None or session.growth is not None:
            self.pump(session)
            return
        # What was granted for it already counts, so that only what the books or the device lack is asked for.
        missing = max(request.bytes - self._slack(session), request.bytes - free)
        if missing > 0:
            self._ask(session, guard, ticket, missing)
        else:
            self._grant(session, guard, ticket)
            self.pump(session)

    def _said(self, event: Event) -> None:
        try:
            self._tell(event)
        except SalusError as error:
            self._log.warning("The core refused %r: %s", event, error)
