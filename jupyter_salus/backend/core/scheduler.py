"""The scheduler: one event in, the decisions out. Pure: no clock, thread, socket, driver, environment or randomness.

`handle` books what happened and then lets `plan.advance` bring the device to where it should be. Events that name an old
epoch, move, ticket or request are ignored and counted; illegal ones raise and change nothing. The same events at the
same times give the same decisions.
"""

from __future__ import annotations

from typing import assert_never, cast

from . import events, invariants, leases, limits, plan, reports, snapshot, turns, wishes
from .config import Config
from .deadlines import Due
from .decisions import Decision
from .device import Device
from .session import Session
from .snapshot import Places, Snapshot
from .state import State
from .transitions import Turn

AnyEvent = (
    events.SessionOpened
    | events.EvictableChanged
    | events.LeaseLost
    | events.SeatLeft
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
    | events.UserLimits
    | events.PinChanged
    | events.YieldAsked
    | events.EvictAsked
    | events.RestoreAsked
    | events.PolicyChanged
    | events.DrainAsked
    | events.DeadlineReached
)


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
        if self._state.unsettled or self._state.look:
            self._settle(now)
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

    def may_hold(self, session: str, device: str = "") -> int:
        """Bytes that a session may have on a device now ("": its first): its own, and in a turn its lane's; 0 for an
        unknown one."""
        found = self._state.sessions.get(session)
        if found is None:
            return 0
        found = found.part(device)
        return found.held_bytes + (found.lane_bytes if found.holds else found.stopped_bytes)

    def check_invariants(self) -> None:
        """Raise `AssertionError` if anything doesn't hold that always must. Slow."""
        invariants.check(self._state, self._now)

    @property
    def ignored(self) -> dict[str, int]:
        """How many events came too late, by kind."""
        return dict(self._state.ignored)

    def _settle(self, now: float) -> None:
        """Hold what users have against what they may have, and look at the other devices that the event concerns."""
        state = self._state
        while state.unsettled or state.look:
            while state.unsettled:
                limits.settle(state, state.unsettled.popitem()[0], now)
            if state.look:
                plan.advance(state, state.look.popitem()[0], now)

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
                    look = session is not None and leases.left_in_time(session)
                case Due.SEAT:
                    if session is not None:
                        leases.seat_over(session, due.mark)
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
                plan.advance(state, due.device if session is None else session.device, now)

    def _starve(self, session: Session, mark: int, now: float) -> bool:
        if session.turn is not Turn.WAITING or session.epoch != mark or session.starving or session.silent:
            return False
        if session.outside:
            return False  # whatever others do, it can't go on

        assert session.waiting_since is not None, "a waiting session waits since some time"
        due = session.waiting_since + session.device.policy.max_wait_s
        if now < due:
            self._state.deadlines.set(due, Due.STARVING, session.device, session, mark)
            return False
        session.starving = True
        self._state.file(session, now)
        return True

    # ---- events --------------------------------------------------------------------------------------------------

    def _take(self, event: AnyEvent, now: float) -> Device | None:
        """Book one event; the device to look at, if it could matter."""
        state = self._state
        match event:
            case events.IterationsFinished():
                return reports.iterations_finished(state, event, now)
            case events.TurnReleased():
                return reports.turn_released(state, event, now)
            case events.TurnRequested():
                return reports.turn_requested(state, event, now)
            case events.DeadlineReached():
                return None
            case events.CellStarted() | events.CellFinished():
                state.session(event.session)
                return None
            case events.MemoryMeasured():
                return reports.memory_measured(state, event, now)
            case events.GrowthAsked():
                return reports.growth_asked(state, event, now)
            case events.GrowthWithdrawn():
                return reports.growth_withdrawn(state, event, now)
            case events.TurnWithdrawn():
                return reports.turn_withdrawn(state, event, now)
            case events.SessionEvicted() | events.EvictionFailed() | events.SessionRestored() | events.RestoreFailed():
                return reports.move_ended(state, event, now)
            case events.DeviceMeasured():
                return reports.device_measured(state, event, now)
            case events.SessionOpened():
                return leases.opened(state, event, now)
            case events.EvictableChanged():
                return leases.evictable(state, event, now)
            case events.LeaseLost():
                return leases.lost(state, event, now)
            case events.SeatLeft():
                leases.seat_left(state, event)
                return None
            case events.BytesFreed():
                return leases.bytes_freed(state, event)
            case events.SessionBroken():
                return leases.broken(state, event, now)
            case events.PolicyChanged():
                return wishes.policy(state, event, now)
            case events.DrainAsked():
                return wishes.drain(state, event)
            case events.PriorityChanged():
                return wishes.prioritize(state, event, now)
            case events.PinChanged():
                return wishes.pin(state, event, now)
            case events.UserLimits():
                wishes.limit(state, event, now)
                return None
            case events.YieldAsked():
                return wishes.pass_on(state, event, now)
            case events.EvictAsked():
                return wishes.evict(state, event, now)
            case events.RestoreAsked():
                return wishes.restore(state, event, now)
            case _ as never:
                assert_never(never)
