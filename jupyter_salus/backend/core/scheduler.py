"""The scheduler: one event in, the decisions out. Pure: no clock, thread, socket, driver, environment or randomness.

`handle` books what happened and then lets `plan.advance` bring the device to where it should be. Events that name an old
epoch, move, ticket or request are ignored and counted; illegal ones raise and change nothing. The same events at the
same times give the same decisions.
"""

from __future__ import annotations

from typing import assert_never, cast

from ...errors import BadValue, NotPossible, UnknownSession
from . import events, growth, invariants, memory, moves, plan, policies, snapshot, turns
from .config import Config
from .deadlines import Due
from .decisions import Decision, ExplainWait
from .device import Device
from .find import join, room_if_lanes_shrink, shed
from .ledger import Ledger
from .pace import Pace
from .session import CLASSES, NO_PROFILE, Session
from .snapshot import Places, Snapshot
from .state import State
from .transitions import Residency, Turn

AnyEvent = (
    events.SessionOpened
    | events.LeaseLost
    | events.BytesFreed
    | events.SessionBroken
    | events.TurnRequested
    | events.TurnWithdrawn
    | events.TurnReleased
    | events.IterationsFinished
    | events.CellStarted
    | events.CellFinished
    | events.MemoryMeasured
    | events.GrowthAsked
    | events.GrowthWithdrawn
    | events.SessionEvicted
    | events.EvictionFailed
    | events.SessionRestored
    | events.RestoreFailed
    | events.DeviceMeasured
    | events.PriorityChanged
    | events.PinChanged
    | events.YieldAsked
    | events.EvictAsked
    | events.RestoreAsked
    | events.PolicyChanged
    | events.DeadlineReached
)

#: A peer that is gone leaves its bytes so soon that nobody is moved for them.
LEAVES_S = 5.0


class Scheduler:
    """Who runs on each device, who waits, and whose bytes are where."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config if config is not None else Config()
        self._state = State(self.config)
        self._now = 0.0

    # ---- the outside ---------------------------------------------------------------------------------------------

    def handle(self, event: events.Event, now: float) -> list[Decision]:
        """Take in one event; what is to be done because of it.

        Raises errors of `errors` for events that can't be: an unknown session or device, a bad value, something that
        isn't possible now. Nothing has changed then. `now` never goes back: an earlier time counts as the latest seen.
        """
        now = self._now = max(now, self._now)
        self._state.outbox = []
        device = self._take(cast("AnyEvent", event), now)
        if device is not None:
            plan.advance(self._state, device, now)
        self._pass_deadlines(now)
        return self._state.outbox

    def next_deadline(self) -> float | None:
        """When `DeadlineReached` should be handled next; None: never. Something that is past may be named."""
        return self._state.deadlines.next()

    def snapshot(self, now: float) -> Snapshot:
        """What people may see, at `now`."""
        return snapshot.take(self._state, now)

    @property
    def changes(self) -> int:
        """Grows whenever `places` may have changed."""
        return sum(device.ledger.changes for device in self._state.devices.values())

    def places(self) -> Places:
        """Which session is in which lane and on its device: the part of the snapshot that is cheap to read."""
        return snapshot.places(self._state)

    def check_invariants(self) -> None:
        """Raise `AssertionError` if anything doesn't hold that always must. Slow."""
        invariants.check(self._state, self._now)

    @property
    def ignored(self) -> dict[str, int]:
        """How many events came too late, by kind."""
        return dict(self._state.ignored)

    # ---- deadlines -----------------------------------------------------------------------------------------------

    def _pass_deadlines(self, now: float) -> None:
        state = self._state
        while (due := state.deadlines.take(now)) is not None:
            session = due.session
            look = False
            match due.due:
                case Due.DEVICE:
                    look = True
                case Due.LEAVING:
                    if session is not None and session.going:
                        session.going = False
                        due.device.going_bytes -= session.held_bytes
                        look = True
                case Due.QUANTUM:
                    look = session is not None and session.turn is Turn.RUNNING and session.epoch == due.mark
                case Due.REVOKED:
                    late = (Turn.YIELDING, Turn.STOPPING)
                    if session is not None and session.epoch == due.mark and session.turn in late:
                        turns.escalate(state, session, now)
                        look = True
                case Due.STARVING:
                    look = session is not None and self._starve(session, due.mark, now)
                case _ as never:
                    assert_never(never)
            if look:
                plan.advance(state, due.device, now)

    def _starve(self, session: Session, mark: int, now: float) -> bool:
        if session.turn is not Turn.WAITING or session.epoch != mark or session.starving or session.silent:
            return False
        assert session.waiting_since is not None, "a waiting session waits since some time"
        due = session.waiting_since + session.device.policy.max_wait_s
        if now < due:
            self._state.deadlines.set(due, Due.STARVING, session.device, session, mark)
            return False
        session.starving = True
        self._state.file(session, now)
        return True

    # ---- events --------------------------------------------------------------------------------------------------

    def _ignore(self, event: events.Event) -> None:
        self._state.ignored[type(event).__name__] += 1

    def _take(self, event: AnyEvent, now: float) -> Device | None:
        """Book one event; the device to look at, if it could matter."""
        state = self._state
        match event:
            case events.IterationsFinished():
                return self._iterations_finished(event, now)
            case events.TurnReleased():
                return self._turn_released(event, now)
            case events.TurnRequested():
                return self._turn_requested(event, now)
            case events.DeadlineReached():
                return None
            case events.CellStarted() | events.CellFinished():
                state.session(event.session)
                return None
            case events.MemoryMeasured():
                return self._memory_measured(event, now)
            case events.SessionOpened():
                return self._session_opened(event, now)
            case events.LeaseLost():
                return self._lease_lost(event, now)
            case events.BytesFreed():
                return self._bytes_freed(event, now)
            case events.SessionBroken():
                return self._session_broken(event, now)
            case events.TurnWithdrawn():
                return self._turn_withdrawn(event, now)
            case events.GrowthAsked():
                session = state.session(event.session)
                growth.ask(state, session, event.request, event.extra_bytes, now)
                self._explain(session, now)
                return session.device
            case events.GrowthWithdrawn():
                session = state.session(event.session)
                if not growth.withdraw(state, session, event.request, now):
                    self._ignore(event)
                    return None
                return session.device
            case events.SessionEvicted() | events.EvictionFailed() | events.SessionRestored() | events.RestoreFailed():
                return self._move_ended(event, now)
            case events.DeviceMeasured():
                return self._device_measured(event, now)
            case events.PolicyChanged():
                return self._policy_changed(event, now)
            case events.PriorityChanged():
                session = state.session(event.session)
                session.priority = _priority(event.priority)
                session.device.stale = True
                state.file(session, now)
                return session.device
            case events.PinChanged():
                session = state.session(event.session)
                session.pinned = event.pinned
                state.file(session, now)
                return session.device
            case events.YieldAsked():
                return self._yield_asked(event, now)
            case events.EvictAsked():
                return self._evict_asked(event, now)
            case events.RestoreAsked():
                return self._restore_asked(event, now)
            case _ as never:
                assert_never(never)

    # ---- sessions ------------------------------------------------------------------------------------------------

    def _session_opened(self, event: events.SessionOpened, now: float) -> Device:
        state = self._state
        device = state.device(event.device)
        if event.session in state.sessions:
            raise BadValue(f"cannot open session {event.session!r}: it is open already", {"session": event.session})
        priority = _priority(event.priority)
        session = Session(
            id=event.session,
            number=state.next_number(),
            user=event.user,
            device=device,
            priority=priority,
            evictable=event.evictable,
            opened_at=now,
            profile=event.profile if event.profile is not None else NO_PROFILE,
        )
        session.window_start = session.credit_start = now
        # The first credit begins with the first use.
        session.credit_start = now - self.config.credit_window_s
        state.sessions[session.id] = session
        if event.persistent_bytes or event.holding:
            session.persistent_bytes = event.persistent_bytes
            session.to_residency(Residency.RESIDENT)
            state.observe(session, event.persistent_bytes)
        if event.holding:
            self._resume(session, now)
        state.file(session, now)
        return device

    def _resume(self, session: Session, now: float) -> None:
        """It came back to a new backend in the middle of its turn: that turn goes on, under a new epoch."""
        device = session.device
        over, device.over_capacity = device.over_capacity, True
        session.to_turn(Turn.WAITING)
        session.arrived_at = session.waiting_since = now
        turns.grant(self._state, session, now)
        session.resumed = True
        device.over_capacity = over

    def _lease_lost(self, event: events.LeaseLost, now: float) -> Device:
        state = self._state
        session = state.session(event.session)
        device = session.device
        turns.drop(state, session, now)
        if session.residency is Residency.EVICTING:
            device.going_bytes -= session.held_bytes
        elif session.residency is Residency.EVICTED and session.evictable:
            device.fixed_bytes -= session.held_bytes
        device.moving.pop(session.id, None)
        device.leave_lane(session)
        session.to_residency(Residency.LEAVING)
        device.forget(session)
        if session in device.overgrown:
            device.overgrown.remove(session)
        session.going = True
        device.going_bytes += session.held_bytes
        state.deadlines.set(now + LEAVES_S, Due.LEAVING, device, session)
        del state.sessions[session.id]
        state.leaving.setdefault(session.id, []).append(session)
        return device

    def _bytes_freed(self, event: events.BytesFreed, now: float) -> Device:
        state = self._state
        gone = state.leaving.get(event.session)
        if not gone:
            raise UnknownSession(f"cannot free the bytes of session {event.session!r}: it isn't leaving")
        session = gone.pop(0)
        if not gone:
            del state.leaving[event.session]
        device = session.device
        if session.going:
            session.going = False
            device.going_bytes -= session.held_bytes
        state.hold(session, -session.held_bytes)
        device.ledger.observe_stopped(-session.stopped_bytes)
        session.stopped_bytes = 0
        session.to_residency(Residency.CLOSED)
        return device

    def _session_broken(self, event: events.SessionBroken, now: float) -> Device:
        session = self._state.session(event.session)
        turns.drop(self._state, session, now)
        session.broken = event.message
        self._state.file(session, now)
        return session.device

    # ---- turns ---------------------------------------------------------------------------------------------------

    def _turn_requested(self, event: events.TurnRequested, now: float) -> Device | None:
        state = self._state
        session = state.session(event.session)
        if session.broken is not None:
            raise NotPossible(f"cannot give session {session.id} a turn: {session.broken}")
        if session.turn is Turn.WAITING:
            # The same wait under a new number: a second thread, or a reconnection.
            session.ticket = event.ticket
            return None
        if session.turn is not Turn.NONE:
            raise NotPossible(f"cannot let session {session.id} wait for a turn: it has one ({session.turn.value})")
        device = session.device
        session.silent, session.background = event.silent, event.background
        session.arrived_at = now
        device.policy.arrived(session)
        device.stale = device.stale or device.policy.preempts
        first = not len(device.waiting)
        turns.begin_wait(state, session, event.ticket, now)
        if first:
            for holder in device.holders:
                turns.watch_quantum(state, holder)
        if session.residency is Residency.RESIDENT and self.config.lanes != "off":
            join(device, session)
        plan.advance(state, device, now)
        self._explain(session, now)
        return None

    def _explain(self, session: Session, now: float) -> None:
        if session.turn in (Turn.WAITING, Turn.BLOCKED):
            self._state.outbox.append(ExplainWait(session.id, session.ticket))

    def _turn_withdrawn(self, event: events.TurnWithdrawn, now: float) -> Device | None:
        session = self._state.session(event.session)
        if session.turn is not Turn.WAITING or session.ticket != event.ticket:
            self._ignore(event)
            return None
        turns.withdraw(self._state, session, now)
        return session.device

    def _turn_released(self, event: events.TurnReleased, now: float) -> Device | None:
        state = self._state
        session = state.session(event.session)
        if session.epoch != event.epoch or not (session.holds or session.turn is Turn.LOST):
            self._ignore(event)
            return None
        turns.release(state, session, event.ticket, event.stopped_bytes, now)
        if session.evict_asked and state.can_go(session, now):
            moves.evict(state, session, "asked for", now)
        return session.device

    def _iterations_finished(self, event: events.IterationsFinished, now: float) -> Device | None:
        state = self._state
        session = state.session(event.session)
        if session.epoch != event.epoch or not (session.holds or session.turn is Turn.LOST):
            self._ignore(event)
            return None
        device = session.device
        if session.holds:
            state.charge(session, now)
        session.iterations += event.count
        if event.remaining is not None:
            session.remaining = event.remaining
        if event.host_bound is not None:
            session.host_bound = event.host_bound
        if session.turn is Turn.RUNNING or session.turn is Turn.YIELDING:
            session.mapped_bytes = 0
        changed = self._learn(session, event, now)
        if changed:
            device.recount(session)
            device.stale = True
        if not changed and not len(device.waiting):
            return None
        return device if changed or now >= session.quantum_end else None

    def _learn(self, session: Session, event: events.IterationsFinished, now: float) -> bool:
        """Speed and shares, from iterations during which nothing changed beside them."""
        device = session.device
        if event.count <= 0 or event.busy_s <= 0.0 or not session.holds:
            return False
        began = now - event.busy_s
        if not session.handed_over:
            session.handed_over = True
            device.handover_s += 0.2 * (max(began - session.granted_at, 0.0) - device.handover_s)
        if device.parallel_since > began + 1e-6:
            return False
        others = [one for one in device.holders if one is not session]
        return device.pace.learn(session, others, event.busy_s / event.count, event.device_share, now)

    def _yield_asked(self, event: events.YieldAsked, now: float) -> Device:
        session = self._state.session(event.session)
        if session.turn is not Turn.RUNNING:
            raise NotPossible(f"cannot let session {session.id} pass its turn on: it has none ({session.turn.value})")
        session.yielded = True
        turns.revoke(self._state, session, now)
        return session.device

    # ---- memory --------------------------------------------------------------------------------------------------

    def _memory_measured(self, event: events.MemoryMeasured, now: float) -> Device | None:
        session = self._state.session(event.session)
        device = session.device
        free = device.ledger.free
        memory.measured(self._state, session, event.persistent_bytes, event.ephemeral_bytes, now)
        if device.ledger.free == free:
            return None
        device.stale = True
        return device

    def _move_ended(
        self,
        event: events.SessionEvicted | events.EvictionFailed | events.SessionRestored | events.RestoreFailed,
        now: float,
    ) -> Device | None:
        state = self._state
        session = state.sessions.get(event.session)
        out = isinstance(event, (events.SessionEvicted, events.EvictionFailed))
        expected = Residency.EVICTING if out else Residency.RESTORING
        if session is None or session.move != event.move or session.residency is not expected:
            self._ignore(event)
            return None
        match event:
            case events.SessionEvicted():
                moves.evicted(state, session, event.seconds, event.freed_bytes, now)
            case events.EvictionFailed():
                moves.eviction_failed(state, session, now)
            case events.SessionRestored():
                moves.restored(state, session, event.seconds, now)
            case events.RestoreFailed():
                moves.restore_failed(state, session, now)
            case _ as never:
                assert_never(never)
        session.device.stale = session.device.stale or session.device.policy.preempts
        return session.device

    def _evict_asked(self, event: events.EvictAsked, now: float) -> Device:
        session = self._state.session(event.session)
        device = session.device
        if not device.moves or not session.evictable:
            raise NotPossible(f"cannot move session {session.id} out: device {device.id} can't move it")
        if session.residency is not Residency.RESIDENT:
            raise NotPossible(f"cannot move session {session.id} out: it is {session.residency.value}")
        if session.turn in (Turn.NONE, Turn.WAITING):
            moves.evict(self._state, session, "asked for", now)
        else:
            session.evict_asked = True
            if session.turn is Turn.RUNNING:
                turns.revoke(self._state, session, now)
        return device

    def _restore_asked(self, event: events.RestoreAsked, now: float) -> Device:
        session = self._state.session(event.session)
        if session.residency is not Residency.EVICTED:
            raise NotPossible(f"cannot bring session {session.id} back: it is {session.residency.value}")
        free = max(room_if_lanes_shrink(session.device), 0)
        if session.out_bytes > free:
            raise NotPossible(
                f"cannot bring session {session.id} back: it needs {session.out_bytes} bytes, {free} are free"
            )
        shed(session.device, session.out_bytes)
        moves.restore(self._state, session, now)
        return session.device

    # ---- devices -------------------------------------------------------------------------------------------------

    def _device_measured(self, event: events.DeviceMeasured, now: float) -> Device:
        state = self._state
        device = state.devices.get(event.device)
        if device is None:
            ledger = Ledger(event.device, event.capacity_bytes, event.foreign_bytes, event.reserve_bytes)
            device = Device(
                event.device,
                ledger,
                Pace(self.config),
                policies.make(policies.NAMES[0], self.config),
                moves=event.moves,
                side_by_side=event.side_by_side,
            )
            device.move_credit_at = now
            device.move_cost = (self.config.move_s, 1.0 / self.config.move_bytes_per_s)
            state.devices[event.device] = device
            return device
        device.ledger.observe_device(event.capacity_bytes, event.foreign_bytes, event.reserve_bytes)
        device.moves, device.side_by_side = event.moves, event.side_by_side
        device.stale = True
        if not device.side_by_side:
            for holder in device.holders:
                holder.resumed = True
        if device.ledger.free < 0:
            shed(device, 0)
        return device

    def _policy_changed(self, event: events.PolicyChanged, now: float) -> Device:
        state = self._state
        device = state.device(event.device)
        device.policy = policies.make(event.policy, self.config)
        device.stale = True
        for session in list(device.waiting):
            # What isn't starving by the new bound isn't, and the other way round.
            session.starving = False
            state.file(session, now)
            since = session.waiting_since if session.waiting_since is not None else now
            state.deadlines.set(since + device.policy.max_wait_s, Due.STARVING, device, session, session.epoch)
        for holder in device.holders:
            turns.begin_quantum(state, holder, now)
        return device


def _priority(value: str) -> str:
    """The value, if it is a priority. Raises `BadValue`."""
    if value not in CLASSES:
        raise BadValue(f"cannot use priority {value!r}: it must be one of {', '.join(CLASSES)}", {"value": value})
    return value
