"""What can't be is refused with its name, and leaves no trace: not even in what is decided afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

import pytest

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.scheduler import Scheduler
from jupyter_salus.errors import BadValue, NotPossible, PeerError, UnknownDevice, UnknownSession

from .world import MIB, World

#: Every event that names a session, about one that nobody opened.
ABOUT_NOBODY = [
    events.LeaseLost("nobody"),
    events.BytesFreed("nobody"),
    events.SessionBroken("nobody", "it is broken"),
    events.TurnRequested("nobody", 1),
    events.TurnWithdrawn("nobody", 1),
    events.TurnReleased("nobody", 1),
    events.IterationsFinished("nobody", 1, 1, 0.1),
    events.CellStarted("nobody"),
    events.CellFinished("nobody"),
    events.MemoryMeasured("nobody", 5, 5),
    events.GrowthAsked("nobody", 1, 5),
    events.GrowthWithdrawn("nobody", 1),
    events.PriorityChanged("nobody", "high"),
    events.PinChanged("nobody", True),
    events.EvictableChanged("nobody", True),
    events.YieldAsked("nobody"),
    events.EvictAsked("nobody"),
    events.RestoreAsked("nobody"),
]
#: Outcomes of moves may come after their session is gone: late, not wrong.
LATE = [
    events.SessionEvicted("nobody", 1, 0.1, 5),
    events.EvictionFailed("nobody", 1, "host memory is short"),
    events.SessionRestored("nobody", 1, 0.1),
    events.RestoreFailed("nobody", 1, "a block didn't come back"),
]
REFUSED: list[tuple[events.Event, type[PeerError], str]] = [
    (events.SessionOpened("new", "u", "nowhere"), UnknownDevice, "cannot find device 'nowhere': known are gpu"),
    (events.SessionOpened("runs", "u", "gpu"), BadValue, "cannot open session 'runs': it is open already"),
    (
        events.SessionOpened("new", "u", "gpu", holding=True, out_bytes=5),
        BadValue,
        "can't have a turn and be in host memory",
    ),
    (events.SessionOpened("new", "u", "gpu", priority="urgent"), BadValue, "must be one of high, normal, low"),
    (events.PriorityChanged("runs", ""), BadValue, "cannot use priority ''"),
    (events.PolicyChanged("gpu", "lottery"), BadValue, "must be one of fair, fifo, srtf, pack, priority"),
    (events.PolicyChanged("nowhere", "fair"), UnknownDevice, "cannot find device 'nowhere'"),
    (events.TurnRequested("runs", 99), NotPossible, "cannot let session runs wait for a turn: it has one"),
    (events.TurnRequested("broken", 1), NotPossible, "cannot give session broken a turn: illegal address"),
    (events.GrowthAsked("waits", 1, 5), NotPossible, "cannot give session waits 5 more bytes: it has no turn"),
    (events.GrowthAsked("idle", 1, 5), NotPossible, "cannot give session idle 5 more bytes: it has no turn"),
    (events.YieldAsked("waits"), NotPossible, "cannot let session waits pass its turn on"),
    (events.YieldAsked("idle"), NotPossible, "cannot let session idle pass its turn on"),
    (events.EvictAsked("fixed"), NotPossible, "cannot move session fixed out: device gpu can't move it"),
    (events.EvictAsked("out"), NotPossible, "cannot move session out out: it is evicted"),
    (events.EvictAsked("new-here"), NotPossible, "cannot move session new-here out: it is absent"),
    (events.RestoreAsked("idle"), NotPossible, "cannot bring session idle back: it is resident"),
    (events.RestoreAsked("out"), NotPossible, "cannot bring session out back: it needs 524288000 bytes"),
    (events.BytesFreed("idle"), UnknownSession, "cannot free the bytes of session 'idle': it isn't leaving"),
]


def _world() -> World:
    """One session of each kind on a device that is nearly full."""
    world = World(grows=False)
    world.device()
    world.want(world.open("out", persistent=500), iterations=1)
    world.run(1)
    world.tell(events.EvictAsked("out"))
    world.run(1)
    world.want(world.open("idle", persistent=100), iterations=1)
    world.run(1)
    world.want(world.open("fixed", persistent=100, evictable=False), iterations=1)
    world.run(1)
    broken = world.open("broken")
    world.tell(events.SessionBroken(broken.id, "illegal address"))
    world.open("new-here")
    full = events.Profile(400 * MIB, 100 * MIB, device_share=1.0, iteration_s=0.2)
    for name in ("runs", "waits"):
        world.want(world.open(name, persistent=200, ephemeral=100, profile=full))
    assert world.row("runs").turn == "running"
    assert world.row("waits").turn == "waiting"
    return world


def test_every_event_about_a_session_is_tried_with_one_that_nobody_opened():
    about = {
        kind
        for kind in vars(events).values()
        if isinstance(kind, type) and issubclass(kind, events.Event)
        # A seat that nobody keeps may be left all the same.
        if kind not in (events.SessionOpened, events.SeatLeft)
        if "session" in {field.name for field in fields(kind)}
    }
    assert {type(event) for event in (*ABOUT_NOBODY, *LATE)} == about


@pytest.mark.parametrize("event", ABOUT_NOBODY, ids=lambda event: type(event).__name__)
def test_an_unknown_session_is_named_and_nothing_changes(event: events.Event):
    world = _world()
    before = world.scheduler.snapshot(world.now)
    with pytest.raises(UnknownSession, match=r"^cannot .*'nobody'"):
        world.tell(event)
    assert world.scheduler.snapshot(world.now) == before
    world.scheduler.check_invariants()


@pytest.mark.parametrize("event", LATE, ids=lambda event: type(event).__name__)
def test_the_outcome_of_a_move_of_a_session_that_is_gone_is_late(event: events.Event):
    world = _world()
    before = world.scheduler.snapshot(world.now)
    world.tell(event)
    assert world.scheduler.snapshot(world.now) == before
    assert world.scheduler.ignored == {type(event).__name__: 1}


def _name(value: object) -> str | None:
    if isinstance(value, events.Event):
        parts = (str(getattr(value, field.name)) for field in fields(value)[:2])
        return "-".join([type(value).__name__, *parts])
    return None


@pytest.mark.parametrize(("event", "error", "words"), REFUSED, ids=_name)
def test_what_is_not_possible_is_refused_in_words_and_nothing_changes(
    event: events.Event, error: type[PeerError], words: str
):
    world = _world()
    scheduler = world.scheduler
    before = (scheduler.snapshot(world.now), scheduler.next_deadline(), scheduler.ignored)
    with pytest.raises(error) as caught:
        world.tell(event)
    assert caught.value.message.startswith("cannot ")
    assert words in caught.value.message
    assert (scheduler.snapshot(world.now), scheduler.next_deadline(), scheduler.ignored) == before
    scheduler.check_invariants()


def _replay(
    story: Sequence[tuple[float, events.Event, tuple[object, ...]]], between: Callable[[Scheduler, float], None]
):
    scheduler = Scheduler(World().config)
    for now, event, decided in story:
        between(scheduler, now)
        assert tuple(scheduler.handle(event, now)) == decided


def test_refused_events_leave_no_trace_in_later_decisions():
    world = _world()
    world.run(3)
    world.crash(world.guests["runs"])
    world.run(3)
    wrong = [
        *ABOUT_NOBODY,
        events.SessionOpened("x", "u", "nowhere"),
        events.SessionOpened("x", "u", "gpu", priority="urgent"),
        events.PolicyChanged("gpu", "lottery"),
    ]

    def between(scheduler: Scheduler, now: float) -> None:
        if not scheduler.snapshot(now).devices:
            return
        for event in wrong:
            with pytest.raises(PeerError):
                scheduler.handle(event, now)

    _replay(world.story, between)


def test_a_device_that_nobody_measured_is_unknown():
    with pytest.raises(UnknownDevice, match="cannot find device 'gpu': known are none"):
        Scheduler().handle(events.SessionOpened("a", "u", "gpu"), 0.0)
