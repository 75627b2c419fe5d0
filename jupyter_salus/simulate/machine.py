"""The virtual machine: carries the core's decisions out on virtual guests and tells the core what came of them.

It plays the daemon's part and the device's. The core meets jobs only through the daemon's own events; profiles, shares and
lengths stay on this side, except what `knowledge` and `memory` allow. A guest reports like a real one, at boundaries and
seldom: right after something changed, else about once a second, and whenever a turn passes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from time import thread_time_ns

from ..backend.core import decisions, events
from ..backend.core.scheduler import Scheduler
from ..errors import UsageError
from .clock import Clock
from .device import Device
from .guest import Guest, State
from .iterations import write_iterations
from .log import Log
from .placement import Placement
from .report import Tally
from .settings import Settings
from .trace import Job

#: Seconds between reports: the guest's shortest interval, and the one it keeps once nothing changes any more.
CLOSE_REPORT_S = 0.1
STEADY_REPORT_S = 1.0
#: Reports at the shortest interval after a start or a change of speed.
CLOSE_REPORTS = 2
USER = "trace"
#: So many decisions in a row without any guest at a boundary, and nobody running, mean that the core goes round in circles.
DECISIONS_WITHOUT_WORK = 20_000


class Stalled(UsageError):
    """The scheduler left jobs without a turn for good: a fault of ours."""

    code = "stalled"


class Machine:
    """One run of a trace. `run` leaves the figures in `tally` and the story in the log."""

    def __init__(self, jobs: Sequence[Job], settings: Settings, log: Log, scheduler: Scheduler | None = None) -> None:
        self.jobs = jobs
        self.settings = settings
        self.model = settings.model
        self.log = log
        self.tally = Tally(settings.model.capacity_bytes)
        self.clock = Clock()
        self.scheduler = scheduler if scheduler is not None else Scheduler(settings.core)
        self.guests: dict[str, Guest] = {}
        self.devices = {name: Device(name) for name in (f"gpu{number}" for number in range(settings.devices))}
        self.placement = Placement(self.scheduler, self.log, self.tally, self.guests)
        self.host_used_bytes = 0
        self._inbox: deque[events.Event] = deque()
        self._pumping = False
        self._deadline: float | None = None
        self._idle_decisions = 0
        self._written_to = 0.0

    def run(self) -> Tally:
        """Play the whole trace. Returns the figures."""
        for name in self.devices:
            self._tell(
                events.DeviceMeasured(
                    name, self.model.capacity_bytes, moves=True, side_by_side=self.settings.core.lanes != "one"
                )
            )
            self._tell(events.PolicyChanged(name, self.settings.policy))
        for job in self.jobs:
            self.clock.at(job.submit_s, partial(self._arrive, job))
        self.clock.run()
        left = [guest.id for guest in self.guests.values() if guest.state is not State.GONE]
        if left:
            raise Stalled(f"cannot finish {', '.join(left)}: nothing is left to happen at {self.clock.now:.3f} s")
        return self.tally

    # ---- the core -----------------------------------------------------------------------------------------------------

    def _tell(self, *news: events.Event) -> None:
        """Give events to the core and carry out what it decides. Events that come of decisions are told after these."""
        self._inbox.extend(news)
        if self._pumping:
            return
        self._pumping = True
        handle, spent = self.scheduler.handle, self.tally.decisions_ns
        now = self.clock.now
        while self._inbox:
            event = self._inbox.popleft()
            begin = thread_time_ns()
            decided = handle(event, now)
            spent.append(thread_time_ns() - begin)
            self._idle_decisions += 1
            self.placement.observe(now)
            for decision in decided:
                self._carry_out(decision)
        self._pumping = False
        if self._idle_decisions > DECISIONS_WITHOUT_WORK + 10 * len(self.guests):
            if not any(device.running for device in self.devices.values()):
                raise Stalled(f"cannot go on at {now:.3f} s: {self._idle_decisions} decisions, and nobody runs")
            self._idle_decisions = 0
        self._set_alarm()

    def _set_alarm(self) -> None:
        deadline = self.scheduler.next_deadline()
        if deadline is None or (self._deadline is not None and self._deadline <= deadline):
            return
        self._deadline = deadline
        self.clock.at(deadline, lambda: self._ring(deadline))

    def _ring(self, alarm: float) -> None:
        if self._deadline != alarm:
            return  # an earlier alarm was set after this one
        self._deadline = None
        deadline = self.scheduler.next_deadline()
        if deadline is not None and deadline <= self.clock.now:
            self._advance()
            self._tell(events.DeadlineReached())
        else:
            self._set_alarm()

    def _carry_out(self, decision: decisions.Decision) -> None:
        match decision:
            case decisions.GrantTurn():
                self._grant(decision)
            case decisions.RevokeTurn():
                self._revoke(decision)
            case decisions.StopTurn():
                self._stop(decision)
            case decisions.EvictSession():
                self._evict(decision)
            case decisions.RestoreSession():
                self._restore(decision)
            case decisions.GrantGrowth():
                self._grown(decision)
            case decisions.RefuseGrowth():
                self._refused(decision)
            case _:
                pass  # what is only to be shown to people

    # ---- jobs come and go ---------------------------------------------------------------------------------------------

    def _arrive(self, job: Job) -> None:
        self._advance()
        now = self.clock.now
        self.tally.arrived(now)
        workload = job.workload
        device = self._place(job)
        self._note("arrive", job, device)
        if workload.persistent_bytes + workload.ephemeral_bytes > self.model.capacity_bytes:
            self.tally.refused.append(job.job_id)
            self._note("refuse", job, device)
            return
        guest = Guest(job, device.name, asks_for_memory=self.settings.memory == "learned")
        self.guests[guest.id] = guest
        device.guests += 1
        self._tell(
            events.SessionOpened(
                guest.id, USER, device.name, priority=job.priority, evictable=True, profile=self._profile_of(job)
            ),
            events.CellStarted(guest.id),
        )
        if self.settings.startup and workload.startup_s > 0.0:
            guest.state = State.STARTING_UP
            self.clock.at(now + workload.startup_s, lambda: self._want(guest))
        else:
            self._want(guest)

    def _place(self, job: Job) -> Device:
        """The device with the fewest jobs; the core serves sessions where they are opened."""
        return min(self.devices.values(), key=lambda device: device.guests)

    def _profile_of(self, job: Job) -> events.Profile:
        """What the core may know beforehand."""
        known = self.settings.memory == "known"
        return events.Profile(
            persistent_bytes=job.workload.persistent_bytes if known else None,
            ephemeral_bytes=job.workload.ephemeral_bytes if known else None,
            durations_s=self.settings.history.get(job.workload.name, ()),
            declared_s=job.declared_s if self.settings.knowledge == "declared" else None,
        )

    def _finish(self, guest: Guest, device: Device, *, refused: bool = False) -> None:
        now = self.clock.now
        news: list[events.Event] = [] if refused else [self._report_of(guest)]
        guest.state = State.GONE
        guest.epoch = None
        device.guests -= 1
        if refused:
            self.tally.refused.append(guest.id)
        else:
            assert guest.first_turn_at is not None
            guest.finished_at = now
            submit = guest.job.submit_s
            self.tally.finished(now, now - submit, guest.first_turn_at - submit)
        self.placement.gone(guest)
        self._note("refuse" if refused else "finish", guest.job, device)
        self._tell(*news, events.LeaseLost(guest.id), events.BytesFreed(guest.id))

    # ---- turns --------------------------------------------------------------------------------------------------------

    def _want(self, guest: Guest) -> None:
        if guest.state is State.GONE:
            return
        self._advance()
        guest.state = State.WAITING
        guest.ticket += 1
        guest.wanted_at = self.clock.now
        self._tell(events.TurnRequested(guest.id, guest.ticket))

    def _grant(self, decision: decisions.GrantTurn) -> None:
        guest = self.guests[decision.session]
        if guest.state is not State.WAITING or guest.ticket != decision.ticket:
            return
        now = self.clock.now
        device = self.devices[guest.device]
        guest.epoch, guest.lane, guest.revoked = decision.epoch, decision.lane, False
        self.tally.waited(now - guest.wanted_at)
        if guest.first_turn_at is None:
            guest.first_turn_at = now
        handed_over = device.hand_over(decision.lane, guest.id)
        guest.state = State.TAKING_OVER
        guest.appointment += 1
        if not handed_over:
            self._begin(guest, guest.appointment)
        else:
            self.tally.switches += 1
            appointment = guest.appointment
            self.clock.at(now + self.model.switch_s, lambda: self._begin(guest, appointment))

    def _begin(self, guest: Guest, appointment: int) -> None:
        """The hand-over is done: run, once the memory that is needed at this point is there."""
        if guest.appointment != appointment:
            return
        self._advance()
        guest.turn_began_at_done = guest.done
        guest.settled_at = self.clock.now
        guest.close_reports = CLOSE_REPORTS
        self._go_on(guest)

    def _go_on(self, guest: Guest) -> None:
        if guest.asks and guest.asks[0][0] <= guest.done:
            guest.state = State.GROWING
            if not guest.asking:
                guest.asking = True
                guest.request += 1
                self._tell(events.GrowthAsked(guest.id, guest.request, guest.asks[0][1]))
            return
        device = self.devices[guest.device]
        guest.state = State.RUNNING
        guest.settled_at = self.clock.now
        device.running[guest.id] = guest
        self._note("run", guest.job, device, lane=guest.lane)
        self._respeed(device, newcomer=guest)

    def _halt(self, guest: Guest, *, held: int = 0) -> None:
        """Take a guest off the device, with its work counted up to now. `held`: E that it keeps outside its lane."""
        device = self.devices[guest.device]
        guest.settle(self.clock.now, device.device_part)
        guest.appointment += 1
        if device.running.pop(guest.id, None) is not None:
            self._note("stop", guest.job, device, lane=guest.lane, held=held)
            self._respeed(device)

    def _aim(self, guest: Guest) -> None:
        """Set the point of its work at which a running guest is next to do something."""
        if guest.revoked:
            target: float = guest.next_boundary()
        else:
            target = guest.boundary_after(CLOSE_REPORT_S if guest.close_reports > 0 else STEADY_REPORT_S)
        if not guest.measured:
            target = min(target, guest.next_boundary())
        if guest.asks:
            target = min(target, guest.asks[0][0])
        guest.target = target

    def _respeed(self, device: Device, newcomer: Guest | None = None) -> None:
        """Who runs has changed: count everybody's work, give everybody the new speed and a new appointment."""
        now = self.clock.now
        running = list(device.running.values())
        shares = [guest.job.workload.gpu_share for guest in running]
        part, speed = self.model.device_part(shares), self.model.speed(shares)
        for guest in running:
            if guest is newcomer:
                guest.speed = speed
            else:
                guest.settle(now, device.device_part)
                if guest.speed == speed:
                    continue
                guest.speed = speed
                guest.close_reports = CLOSE_REPORTS
            self._aim(guest)
            self._appoint(guest)
        device.device_part = part

    def _appoint(self, guest: Guest) -> None:
        guest.appointment += 1
        appointment = guest.appointment
        self.clock.at(guest.time_of(guest.target), lambda: self._reach(guest, appointment))

    def _reach(self, guest: Guest, appointment: int) -> None:
        """A running guest is at its target: a boundary, or a point of its first iteration where it asks for memory."""
        if guest.appointment != appointment:
            return
        device = self.devices[guest.device]
        self._idle_decisions = 0
        guest.settle(self.clock.now, device.device_part)
        guest.done = guest.target
        self._advance()
        if not guest.at_boundary:
            self._halt(guest)
            self._go_on(guest)
            return
        if not guest.measured:
            guest.measure()
            self.placement.changed(guest, self.clock.now)
            self._tell(events.MemoryMeasured(guest.id, guest.persistent_bytes, guest.ephemeral_bytes))
            self._note("resident", guest.job, device)
        if guest.done >= guest.job.iterations:
            self._halt(guest)
            self._finish(guest, device)
        elif guest.revoked:
            self._release(guest)
        else:
            guest.close_reports -= 1
            self._tell(self._report_of(guest))
            if guest.state is State.RUNNING and guest.appointment == appointment:
                self._aim(guest)
                self._appoint(guest)

    def _report_of(self, guest: Guest) -> events.IterationsFinished:
        count = int(guest.done) - guest.reported
        report = events.IterationsFinished(
            guest.id,
            guest.epoch if guest.epoch is not None else 0,
            count,
            guest.busy_s,
            remaining=guest.remaining if self.settings.knowledge == "progress" else None,
            device_share=guest.device_s / guest.busy_s if guest.busy_s > 0.0 else None,
        )
        guest.reported, guest.busy_s, guest.device_s = int(guest.done), 0.0, 0.0
        return report

    def _revoke(self, decision: decisions.RevokeTurn) -> None:
        guest = self.guests[decision.session]
        if guest.epoch != decision.epoch or guest.revoked:
            return
        guest.revoked = True
        if guest.state is not State.RUNNING:
            return
        guest.settle(self.clock.now, self.devices[guest.device].device_part)
        if guest.at_boundary and guest.done > guest.turn_began_at_done:
            self._release(guest)
        else:
            self._aim(guest)
            self._appoint(guest)

    def _release(self, guest: Guest) -> None:
        """Give the turn back at a boundary and want the next one."""
        self._halt(guest)
        epoch = guest.epoch
        assert epoch is not None
        report = self._report_of(guest)
        self._give_back(guest)
        news: list[events.Event] = [report] if report.count else []
        self._tell(*news, events.TurnReleased(guest.id, epoch, guest.ticket))

    def _give_back(self, guest: Guest) -> None:
        guest.epoch, guest.revoked, guest.state = None, False, State.WAITING
        guest.ticket += 1
        guest.wanted_at = self.clock.now

    def _stop(self, decision: decisions.StopTurn) -> None:
        """The gate closes in mid-iteration; what the iteration holds stays where it is."""
        guest = self.guests[decision.session]
        if guest.epoch != decision.epoch:
            return
        guest.settle(self.clock.now, self.devices[guest.device].device_part)
        held = 0 if guest.at_boundary else guest.ephemeral_bytes
        self._halt(guest, held=held)
        if held:
            self.placement.stopped(guest, held)
        self._give_back(guest)
        self._tell(events.TurnReleased(guest.id, decision.epoch, guest.ticket, stopped_bytes=held))

    # ---- memory -------------------------------------------------------------------------------------------------------

    def _grown(self, decision: decisions.GrantGrowth) -> None:
        guest = self.guests[decision.session]
        if not guest.asking or guest.request != decision.request:
            return
        guest.asking = False
        guest.ephemeral_bytes += guest.asks.popleft()[1]
        self.placement.changed(guest, self.clock.now)
        if guest.state is State.GROWING:
            self._go_on(guest)

    def _refused(self, decision: decisions.RefuseGrowth) -> None:
        """Its framework raises out of memory, and the job ends."""
        guest = self.guests[decision.session]
        if guest.asking and guest.request == decision.request:
            self._finish(guest, self.devices[guest.device], refused=True)

    def _evict(self, decision: decisions.EvictSession) -> None:
        guest = self.guests[decision.session]
        if guest.state is State.GONE:
            return
        host = self.model.host_bytes
        if host is not None and self.host_used_bytes + guest.held_bytes > host:
            self._tell(events.EvictionFailed(guest.id, decision.move, "cannot evict: host memory is short"))
            return
        if guest.epoch is not None:
            # Only a session that waits for memory in its turn goes out like this; its wait and its request go on.
            self._halt(guest)
            guest.epoch, guest.state, guest.wanted_at = None, State.WAITING, self.clock.now
        moved = guest.held_bytes
        self.host_used_bytes += moved
        seconds, end = self._use_link(guest, moved)

        def out() -> None:
            if guest.state is State.GONE:
                return
            self._advance()
            self.tally.evictions += 1
            self.placement.gone(guest)
            self._note("evict", guest.job, self.devices[guest.device])
            self._tell(events.SessionEvicted(guest.id, decision.move, seconds, moved))

        self.clock.at(end, out)

    def _restore(self, decision: decisions.RestoreSession) -> None:
        guest = self.guests[decision.session]
        if guest.state is State.GONE:
            return
        moved = guest.held_bytes
        seconds, end = self._use_link(guest, moved)

        def back() -> None:
            if guest.state is State.GONE:
                return
            self._advance()
            self.host_used_bytes -= moved
            self._tell(events.SessionRestored(guest.id, decision.move, seconds))

        self.clock.at(end, back)

    def _use_link(self, guest: Guest, moved: int) -> tuple[float, float]:
        """Seconds of the move and when it ends."""
        seconds = self.model.moving_s(moved)
        self.tally.moves += 1
        self.tally.moved_bytes += moved
        return seconds, self.devices[guest.device].move(self.clock.now, seconds)

    # ---- the log ------------------------------------------------------------------------------------------------------

    def _note(self, event: str, job: Job, device: Device, *, lane: str | None = None, held: int | None = None) -> None:
        if not self.log.wanted:
            return
        guest = self.guests.get(job.job_id)
        ephemeral = job.workload.ephemeral_bytes if guest is None else guest.ephemeral_bytes
        self.log.write(
            self.clock.now,
            event,
            job=job.job_id,
            device=device.name,
            lane=lane,
            persistent_bytes=job.workload.persistent_bytes if guest is None else guest.persistent_bytes,
            ephemeral_bytes=ephemeral if held is None else held,
        )

    def _advance(self) -> None:
        """Write the ends of iterations that came to pass since the last event."""
        if self.log.wanted:
            write_iterations(self.log, self.devices.values(), self._written_to, self.clock.now)
            self._written_to = self.clock.now
