"""Revisions and gauges under a clock that the test moves: what counts as a change, and when it is told."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from jupyter_salus.backend.core import events as core
from jupyter_salus.backend.core.decisions import Decision, GrantTurn
from jupyter_salus.backend.core.scheduler import Scheduler
from jupyter_salus.backend.daemon.connections import Connection
from jupyter_salus.backend.daemon.feed import SOFT_S, Feed
from jupyter_salus.backend.daemon.gauges import STEP_BYTES, Gauges
from jupyter_salus.backend.daemon.guests import Guests
from jupyter_salus.backend.daemon.history import History
from jupyter_salus.backend.daemon.records import Record, Records
from jupyter_salus.backend.daemon.servers import FORSAKEN_S, Servers
from jupyter_salus.backend.daemon.state import with_names
from jupyter_salus.backend.daemon.users import USER_DOOR, Owner
from jupyter_salus.backend.devices.base import Usage
from jupyter_salus.backend.devices.host import HostDevice
from jupyter_salus.protocol.codec import Message
from jupyter_salus.protocol.messages import Announce, StateChanged
from jupyter_salus.testing import FakeClock

MIB = 1024**2
ADA = Owner("7", "ada")


class Listener(Connection):
    """A connection without a socket: keeps what was said to it."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(None, USER_DOOR, clock.now, logging.getLogger("feed"))  # type: ignore[arg-type]
        self.owner = ADA
        self.said: list[Any] = []
        self._more = asyncio.Event()

    def say(self, said: Message) -> None:
        self.said.append(said)
        self._more.set()

    async def heard(self, count: int) -> None:
        """Wait until so many messages were said."""
        while len(self.said) < count:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 60)


class Stage:
    """A feed over a real core and records."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.scheduler = Scheduler()
        self.records = Records()
        self.history = History(kept=8)
        self.backend = {"pid": 1}
        host = HostDevice(4096 * MIB)
        self.tell(core.DeviceMeasured("host", 4096 * MIB, side_by_side=False))
        self.feed = Feed(
            self.scheduler, self.records, {"host": host}, self.clock, self.history, lambda: dict(self.backend)
        )

    def tell(self, event: core.Event) -> list[Decision]:
        return list(self.scheduler.handle(event, self.clock.now()))

    def told(self, event: core.Event) -> None:
        self.tell(event)

    def open(self, session: str) -> Record:
        record = Record(session, ADA, 1, "host", self.clock.wall(), name=f"{session}.ipynb")
        self.records.by_session[session] = record
        self.tell(core.SessionOpened(self.records.entered(record), "ada", "host"))
        return record

    def revisions(self) -> int:
        before = self.feed.revision
        self.feed.refresh()
        return self.feed.revision - before


@pytest.fixture
async def stage() -> Any:
    made = Stage()
    yield made
    made.feed.stop()


async def test_nothing_new_is_no_revision(stage: Stage) -> None:
    assert stage.revisions() == 1
    stage.clock.advance(100)
    assert stage.revisions() == 0
    stage.open("s1")
    stage.open("s2")
    assert stage.revisions() == 1
    stage.backend["pid"] = 2
    assert stage.revisions() == 1


async def test_totals_and_names_of_the_calendar_are_no_revision(stage: Stage) -> None:
    stage.open("s1")
    (granted,) = (one for one in stage.tell(core.TurnRequested("s1", 1)) if isinstance(one, GrantTurn))
    stage.revisions()
    stage.clock.advance(5)
    stage.clock.jump(3600)
    stage.tell(core.IterationsFinished("s1", granted.epoch, 10, 5.0))
    assert stage.revisions() == 0
    row = stage.feed.row(Listener(stage.clock), "sessions", "s1")
    assert row is not None
    assert row["iterations"] == 10
    assert row["used_s"] == pytest.approx(5.0)


async def test_bytes_are_told_but_not_more_than_once_a_second(stage: Stage) -> None:
    stage.open("s1")
    stage.revisions()
    told = 0
    for number in range(1, 21):
        stage.clock.advance(0.1)
        stage.tell(core.MemoryMeasured("s1", number * 10 * MIB))
        told += stage.revisions()
    # One for the lane or state that it brings, and then one each second.
    assert 1 <= told <= 4
    stage.clock.advance(SOFT_S)
    assert stage.revisions() <= 1
    row = stage.feed.row(Listener(stage.clock), "sessions", "s1")
    assert row is not None
    assert row["persistent_bytes"] == 200 * MIB


async def test_a_burst_is_told_at_once_and_then_at_most_four_times_a_second(stage: Stage) -> None:
    listener = Listener(stage.clock)
    stage.feed.subscribe(listener)
    assert [one.previous_revision for one in listener.said] == [0]
    for number in range(5):
        stage.open(f"s{number}")
        stage.feed.touch()
    await listener.heard(2)
    change = listener.said[1]
    assert isinstance(change, StateChanged)
    assert [row["id"] for row in change.sessions or ()] == [f"s{number}" for number in range(5)]
    # The clock stands still, so the next look has to wait for the whole spacing.
    stage.open("late")
    stage.feed.touch()
    timer = stage.feed._timer
    assert timer is not None
    assert timer.when() - asyncio.get_running_loop().time() > 0.1
    await listener.heard(3)
    assert listener.said[2].previous_revision == change.revision
    stage.feed.unsubscribe(listener)


async def test_a_change_does_not_wait_for_one_that_is_too_young_to_be_told(stage: Stage) -> None:
    stage.open("s1")
    listener = Listener(stage.clock)
    stage.feed.subscribe(listener)
    # Told a moment ago that s1 is there; its bytes have to wait.
    stage.tell(core.MemoryMeasured("s1", 500 * MIB))
    stage.clock.advance(0.3)
    stage.feed.touch()
    stage.feed._look()
    assert len(listener.said) == 1
    slow = stage.feed._timer
    assert slow is not None
    stage.open("s2")
    stage.clock.advance(0.2)
    stage.feed.touch()
    timer = stage.feed._timer
    assert timer is not None
    assert timer.when() < slow.when()
    await listener.heard(2)
    assert [row["id"] for row in listener.said[1].sessions] == ["s2"]


async def test_lanes_are_told_with_the_sessions_that_leave_them(stage: Stage) -> None:
    stage.open("s1")
    stage.open("s2")
    stage.records.by_session["s1"].touched = stage.records.by_session["s2"].touched = True
    (granted,) = (one for one in stage.tell(core.TurnRequested("s1", 1)) if isinstance(one, GrantTurn))
    stage.tell(core.TurnRequested("s2", 1))
    listener = Listener(stage.clock)
    stage.feed.subscribe(listener)
    (lane,) = listener.said[0].lanes
    assert (lane["holder"], lane["waiting"]) == ("s1", ["s2"])
    stage.clock.advance(1)
    stage.tell(core.TurnWithdrawn("s2", 1))
    stage.tell(core.TurnReleased("s1", granted.epoch))
    stage.feed.touch()
    await listener.heard(2)
    assert {row["id"]: row["state"] for row in listener.said[1].sessions} == {"s1": "holding", "s2": "holding"}
    assert [(lane["holder"], lane["waiting"]) for lane in listener.said[1].lanes] == [(None, [])]


async def test_a_removed_session_is_told_once_to_each(stage: Stage) -> None:
    record = stage.open("s1")
    listener = Listener(stage.clock)
    stage.feed.subscribe(listener)
    stage.tell(core.LeaseLost("s1"))
    stage.tell(core.BytesFreed("s1"))
    stage.records.removed(record)
    stage.feed.touch()
    await listener.heard(2)
    assert list(listener.said[1].removed_sessions) == ["s1"]
    late = Listener(stage.clock)
    stage.feed.subscribe(late)
    assert list(late.said[0].removed_sessions) == []
    assert stage.feed.row(late, "sessions", "s1") is None


async def test_an_earlier_incarnation_has_a_name_of_its_own(stage: Stage) -> None:
    first = stage.open("s1")
    second = Record("s1", ADA, 2, "host", stage.clock.wall(), name="s1.ipynb")
    stage.records.by_session["s1"] = second
    stage.tell(core.LeaseLost("s1"))
    stage.tell(core.SessionOpened(stage.records.entered(second), "ada", "host"))
    stage.revisions()
    state = stage.feed.state(Listener(stage.clock))
    assert [(row["id"], row["incarnation"], row["state"]) for row in state["sessions"]] == [
        ("s1", 2, "none"),
        ("s1~1", 1, "leaving"),
    ]
    assert all(row["own"] for row in state["sessions"])
    assert first.core_id != second.core_id


async def test_history_forgets_the_oldest_and_says_so(stage: Stage) -> None:
    for number in range(12):
        stage.open(f"s{number}")
        stage.revisions()
    answer = stage.history.since(0, stage.feed.revision)
    assert (len(answer["entries"]), answer["complete"]) == (8, False)
    recent = stage.history.since(stage.feed.revision - 1, stage.feed.revision)
    assert (len(recent["entries"]), recent["complete"]) == (1, True)


def test_names_stand_where_the_core_has_ids() -> None:
    named = {"a": "A.ipynb", "b~1": "B.ipynb"}.__getitem__
    assert with_names("waits for {session:a}, after {session:b~1}.", named) == "waits for A.ipynb, after B.ipynb."
    assert with_names("{session:a", named) == "{session:a"
    assert with_names("nothing", named) == "nothing"


def gauged(pid: int = 1, clock: FakeClock | None = None) -> tuple[Gauges, Record]:
    gauges, record = (
        Gauges({"host": HostDevice(4096 * MIB)}, clock or FakeClock()),
        Record("s1", ADA, 1, "host", 0.0, pid=pid),
    )
    record.core_id = "s1"
    gauges.opened(record, 100 * MIB)
    return gauges, record


def test_growth_between_boundaries_is_persistent_and_what_went_again_ephemeral() -> None:
    gauges, record = gauged()
    record.epoch = 1
    assert gauges.sampled(record, Usage(900 * MIB, 0, (1,))) is None
    measured = gauges.boundary(record, 300 * MIB, None)
    assert measured == core.MemoryMeasured("s1", 300 * MIB, 600 * MIB)
    assert gauges.sampled(record, Usage(350 * MIB, 0, (1,))) is None
    assert gauges.boundary(record, 300 * MIB, 400 * MIB) == core.MemoryMeasured("s1", None, 100 * MIB)


def test_a_loop_that_tells_of_no_boundary_is_known_by_its_samples() -> None:
    clock = FakeClock()
    gauges, record = gauged(clock=clock)
    record.epoch = 1
    told = []
    for number in range(60):
        clock.advance(0.1)
        # It allocates 400 MiB for good, and 200 MiB more in each iteration.
        measured = gauges.sampled(record, Usage((500 + 200 * (number % 2)) * MIB, 0, (1,)))
        if measured is not None:
            told.append((measured.persistent_bytes, measured.ephemeral_bytes))
    # What held from before is the lowest at first; then the loop's own figures.
    assert told[-1] in ((500 * MIB, 200 * MIB), (None, 200 * MIB))
    assert 2 <= len(told) <= 3


def test_children_count_with_the_session() -> None:
    gauges, record = gauged()
    gauges.sampled(record, Usage(100 * MIB, 50 * MIB, (1, 2)))
    assert record.pids == (1, 2)
    record.epoch = 1
    measured = gauges.boundary(record, 200 * MIB, None)
    assert measured is not None
    assert measured.persistent_bytes == 250 * MIB
    assert sum(gauges.held("host").values()) == 250 * MIB


def test_small_changes_are_not_told() -> None:
    gauges, record = gauged()
    assert gauges.sampled(record, Usage(100 * MIB + STEP_BYTES // 2, 0, (1,))) is None
    record.epoch = 1
    assert gauges.boundary(record, 100 * MIB, None) is None
    measured = gauges.boundary(record, 102 * MIB, None)
    assert measured is not None
    assert measured.persistent_bytes == 102 * MIB


def test_what_is_measured_of_a_closed_session_is_nothing() -> None:
    gauges, record = gauged(pid=0)
    assert gauges.free(record)
    gauges.closed(record)
    assert gauges.sampled(record, Usage(1, 0, (1,))) is None
    assert gauges.boundary(record, 1, None) is None


def test_kernels_of_a_server_that_is_gone_are_forgotten_after_a_while() -> None:
    clock, records, ended = FakeClock(), Records(), []

    class Ends:
        def end(self, record: Record) -> None:
            ended.append(record)

    servers = Servers(records, Ends(), clock, lambda: "host", lambda: None)  # type: ignore[arg-type]
    server = Listener(clock)
    servers.announce(server, Announce(1, "s1", "a-long-token", 1))
    for connected, seconds in (([server], 1000.0), ([], FORSAKEN_S - 1), ([server], 1.0), ([], FORSAKEN_S - 1)):
        servers.forget_forsaken(connected)
        clock.advance(seconds)
    servers.forget_forsaken([])
    assert ended == []
    clock.advance(1.0)
    servers.forget_forsaken([])
    assert [record.session for record in ended] == ["s1"]


def test_an_end_that_was_seen_from_two_sides_is_one(stage: Stage) -> None:
    """The sampling looks in a thread; meanwhile the pidfd told of the same process."""
    record = stage.open("s1")
    gauges = Gauges({"host": HostDevice(4096 * MIB)}, stage.clock)
    closed: list[Record] = []
    log = logging.getLogger("guests")
    guests = Guests(stage.records, gauges, stage.clock, stage.told, lambda _: None, closed.append, log)
    guests.end(record)
    assert (closed, list(stage.records)) == ([record], [])
    guests.look(record)
    assert closed == [record]
