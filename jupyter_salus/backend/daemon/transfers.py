"""Out and back: the core's moves as orders to the guards of a session, and their answers as one outcome.

Nothing is begun for which host memory isn't granted, and no return is ordered while the device itself shows too little
free, whatever the books say. What some processes moved and others couldn't is told as what it freed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from ...errors import SalusError
from ...protocol.guard import BlocksBack, BlocksOut, EvictBlocks, MoveFailed, RestoreBlocks
from ..core import decisions
from ..core import events as core
from ..core.events import Event
from ..devices.base import Device
from .errands import Errands
from .gates import Gates
from .guarded import Guard, Guarded, Move
from .host_memory import HostMemory

#: How often a return that met no room is ordered again, and after how long.
TRIES, PAUSE_S = 5, 0.3


class Transfers:
    """Carries out evictions and returns. `look(device)` measures a device again."""

    def __init__(
        self,
        devices: Mapping[str, Device],
        gates: Gates,
        memory: HostMemory,
        tell: Callable[[Event], None],
        look: Callable[[str], Awaitable[bool]],
        log: logging.Logger,
    ) -> None:
        self._devices = devices
        self._gates = gates
        self._memory = memory
        self._tell = tell
        self._look = look
        self._log = log
        self._errands = Errands("A return can't be ordered", log)

    # ---- out -----------------------------------------------------------------------------------------------------------

    def evict(self, session: Guarded, decision: decisions.EvictSession) -> None:
        """Move the session out: first its gates are shut, if any is open."""
        move = session.move = Move(decision.move, out=True)
        if session.record.epoch is None and session.closing is None and all(one.shut for one in session.connected()):
            self._order_out(session, move)
        else:
            self._gates.suspend(session, lambda why: self._suspended(session, move, why))

    def _suspended(self, session: Guarded, move: Move, why: str | None) -> None:
        if session.move is not move:
            return
        if why is None:
            self._order_out(session, move)
        else:
            move.faults.append(why)
            self._ended(session, move)

    def _order_out(self, session: Guarded, move: Move) -> None:
        for guard in list(session.connected()):
            amount = guard.movable_bytes
            if not amount:
                if guard.fixed is not None:
                    move.faults.append(f"it can't be moved: {guard.fixed}")
                continue
            granted = guard.evicted_bytes + amount
            refusal = self._memory.grant(guard, granted)
            if refusal is not None:
                move.faults.append(refusal)
                continue
            move.waiting.add(guard)
            guard.moving = True
            assert guard.connection is not None
            guard.connection.say(EvictBlocks(move.number, host_bytes=granted))
        if not move.waiting:
            self._ended(session, move)

    def out(self, session: Guarded, guard: Guard, said: BlocksOut) -> None:
        """A guard moved its blocks out."""
        guard.moving = False
        guard.evicted_bytes = min(guard.evicted_bytes + said.bytes, guard.persistent_bytes)
        move = session.move
        if move is None or move.number != said.move or guard not in move.waiting:
            return
        move.bytes += 0 if move.undoing else said.bytes
        self._answered(session, move, guard, said.seconds)

    # ---- back ----------------------------------------------------------------------------------------------------------

    def restore(self, session: Guarded, decision: decisions.RestoreSession) -> None:
        """Bring the session back, if the device shows the room for it."""
        move = session.move = Move(decision.move, out=False)
        self._errands.begin(self._order_back(session, move))

    async def _order_back(self, session: Guarded, move: Move) -> None:
        device = session.record.device
        needed = session.evicted_bytes
        free = await asyncio.to_thread(self._devices[device].free_bytes)
        if session.move is not move:
            return
        if free < needed:
            move.faults.append(
                f"{needed} bytes are needed and the device has {free} free: other processes use the rest"
            )
            await self._look(device)
            if session.move is move:
                self._ended(session, move)
            return
        for guard in list(session.connected()):
            if guard.evicted_bytes:
                self._order_one_back(move, guard)
        if not move.waiting:
            self._ended(session, move)

    def _order_one_back(self, move: Move, guard: Guard) -> None:
        move.waiting.add(guard)
        guard.moving = True
        assert guard.connection is not None
        guard.connection.say(RestoreBlocks(move.number))

    def back(self, session: Guarded, guard: Guard, said: BlocksBack) -> None:
        """A guard's blocks are back."""
        guard.moving = False
        guard.evicted_bytes = 0
        move = session.move
        if move is not None and move.number == said.move and guard in move.waiting:
            move.bytes += said.bytes
            self._answered(session, move, guard, said.seconds)
        else:
            self._gates.back(session, guard)

    # ---- both ----------------------------------------------------------------------------------------------------------

    def failed(self, session: Guarded, guard: Guard, said: MoveFailed) -> None:
        """A guard couldn't carry an order out, or not wholly."""
        guard.moving = False
        move = session.move
        if move is None or move.number != said.move or guard not in move.waiting:
            self._log.info("A guard of %s: %s", session.record.session, said.message)
            return
        if not move.out and said.code == "out_of_memory":
            if move.tries < TRIES:
                move.tries += 1
                asyncio.get_running_loop().call_later(PAUSE_S, self._again, session, move, guard)
                return
            if not move.undoing:
                # What is back goes out again: the books count all of it as out.
                move.undoing = guard.moving = True
                move.faults.append(said.message)
                if guard.connection is not None:
                    guard.connection.say(EvictBlocks(move.number, host_bytes=guard.persistent_bytes))
                return
        move.faults.append(said.message)
        self._answered(session, move, guard, 0.0)

    def _again(self, session: Guarded, move: Move, guard: Guard) -> None:
        if session.move is move and guard in move.waiting and guard.connection is not None:
            guard.moving = True
            guard.connection.say(RestoreBlocks(move.number))

    def lost(self, session: Guarded, guard: Guard) -> None:
        """A guard's connection is over: its part of a move never ends."""
        guard.moving = False
        move = session.move
        if move is not None and guard in move.waiting:
            move.faults.append("its process is gone")
            self._answered(session, move, guard, 0.0)

    def gone(self, guard: Guard) -> None:
        """A guard's process is gone, and its host memory with it."""
        self._memory.free(guard)

    def stop(self) -> None:
        """Order nothing more."""
        self._errands.stop()

    def _answered(self, session: Guarded, move: Move, guard: Guard, seconds: float) -> None:
        move.waiting.discard(guard)
        move.seconds = max(move.seconds, seconds)
        if not move.waiting:
            self._ended(session, move)

    def _ended(self, session: Guarded, move: Move) -> None:
        """All guards answered: the outcome for the core."""
        session.move = None
        name = session.record.core_id
        if name is None or session.record.leaving:
            return
        why = "; ".join(dict.fromkeys(move.faults)) or "nothing of it can be moved"
        event: Event
        if move.out:
            event = (
                core.SessionEvicted(name, move.number, move.seconds, move.bytes)
                if move.bytes
                else core.EvictionFailed(name, move.number, why)
            )
            session.told_bytes = max(session.told_bytes - move.bytes, 0)
        elif move.faults:
            event = core.RestoreFailed(name, move.number, why)
        else:
            event = core.SessionRestored(name, move.number, move.seconds)
            session.told_bytes += move.bytes
        try:
            self._tell(event)
        except SalusError as error:
            self._log.warning("The core refused %r: %s", event, error)
