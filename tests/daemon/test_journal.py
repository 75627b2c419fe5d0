"""Journals of real runs replay through the core to the same decisions; damaged ones say so."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_salus.backend.core import events as core
from jupyter_salus.backend.core.config import Config
from jupyter_salus.backend.core.decisions import Decision, GrantTurn
from jupyter_salus.backend.core.events import Event
from jupyter_salus.backend.core.scheduler import Scheduler
from jupyter_salus.backend.daemon.journal import Journal, config_of, read, replay, written
from jupyter_salus.errors import BadValue
from tests.daemon.speaking import Daemon


def decided(events: Sequence[tuple[Event, float]], config: Config) -> list[list[Decision]]:
    scheduler = Scheduler(config)
    return [list(scheduler.handle(event, now)) for event, now in events]


def test_a_real_run_replays_to_the_same_decisions(daemon: Daemon) -> None:
    guests = [daemon.guest(f"s{number}", name=f"{number}.ipynb", path=f"{number}.ipynb") for number in range(3)]
    guests[0].say({"kind": "turn_wanted", "ticket": 1})
    epochs = [guests[0].hear("turn_granted")["epoch"]]
    guests[1].say({"kind": "turn_wanted", "ticket": 1})
    guests[0].hear("turn_revoked")
    guests[0].say({"kind": "progress", "epoch": epochs[0], "iterations": 3, "busy_s": 0.05, "resident_bytes": 10**8})
    guests[0].say({"kind": "turn_released", "epoch": epochs[0], "wants_more": True, "ticket": 2})
    epochs.append(guests[1].hear("turn_granted")["epoch"])
    guests[2].close()
    guests[1].close()
    epochs.append(guests[0].hear("turn_granted")["epoch"])
    with daemon.client() as client:
        client.act("priority", "s0", "high")
        path = Path(client.ask("journal")["path"])
    assert daemon.stop() == 0
    events = list(replay(path))
    assert len({type(event) for event, _ in events}) >= 6
    first = decided(events, config_of(path))
    assert first == decided(list(replay(path)), config_of(path))
    granted = [one.epoch for made in first for one in made if isinstance(one, GrantTurn)]
    assert granted == epochs


def test_the_journal_of_a_killed_backend_is_set_aside_and_replays(
    daemon: Daemon, wait_until: Callable[..., None]
) -> None:
    daemon.guest("s1")
    with daemon.client() as client:
        path = Path(client.ask("journal")["path"])
    wait_until(lambda: path.exists() and "SessionOpened" in path.read_text())
    daemon.kill()
    for peer in daemon.peers:
        peer.close()
    daemon.start()
    aside = path.with_name(f"{path.name}.1")
    wait_until(lambda: aside.exists())
    assert any(isinstance(event, core.SessionOpened) for event, _ in replay(aside))


EVENTS = st.one_of(
    st.builds(
        core.SessionOpened,
        session=st.text(max_size=5),
        user=st.just("ada"),
        device=st.just("host"),
        holding=st.booleans(),
        profile=st.none()
        | st.builds(
            core.Profile,
            ephemeral_bytes=st.none() | st.integers(0, 2**40),
            iteration_s=st.none() | st.floats(0, 10),
            durations_s=st.lists(st.floats(0, 100), max_size=3).map(tuple),
        ),
    ),
    st.builds(core.TurnReleased, session=st.text(max_size=5), epoch=st.integers(0), ticket=st.none() | st.integers(0)),
    st.builds(core.MemoryMeasured, session=st.just("s"), persistent_bytes=st.none() | st.integers(0)),
    st.builds(core.DeviceMeasured, device=st.just("host"), capacity_bytes=st.integers(0), moves=st.booleans()),
    st.just(core.DeadlineReached()),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(event=EVENTS, now=st.floats(0, 1e9))
def test_every_event_survives_the_file(event: Event, now: float) -> None:
    assert read(json.loads(json.dumps(written(event, now)))) == (event, now)


def kept(path: Path, events: int, part_bytes: int) -> Journal:
    journal = Journal(path, Config(), "run", part_bytes)
    for number in range(events):
        journal.note(core.LeaseLost(f"s{number}"), float(number), ())
        journal.flush()
    return journal


def test_a_long_run_is_kept_in_parts_and_replays_through_them(short_tmp: Path) -> None:
    path = short_tmp / "j.jsonl"
    kept(path, 12, part_bytes=200).close()
    parts = sorted(short_tmp.iterdir())
    assert len(parts) > 2
    assert [event.session for event, _ in replay(path)] == [f"s{number}" for number in range(12)]  # type: ignore[attr-defined]


def test_a_run_whose_beginning_is_gone_says_so(short_tmp: Path) -> None:
    path = short_tmp / "j.jsonl"
    kept(path, 40, part_bytes=100).close()
    with pytest.raises(BadValue, match="began in a part that isn't kept any more"):
        list(replay(path))


def test_the_next_run_sets_the_last_one_aside(short_tmp: Path) -> None:
    path = short_tmp / "j.jsonl"
    kept(path, 2, part_bytes=10**6).close()
    kept(path, 1, part_bytes=10**6).close()
    assert len(list(replay(path))) == 1
    assert len(list(replay(short_tmp / "j.jsonl.1"))) == 2


def test_a_half_written_last_line_is_what_a_killed_backend_leaves(short_tmp: Path) -> None:
    path = short_tmp / "j.jsonl"
    kept(path, 3, part_bytes=10**6).close()
    path.write_text(path.read_text()[:-5])
    assert len(list(replay(path))) == 2


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: text.replace('"LeaseLost"', '"Weather"'), "line 2 is no event"),
        (lambda text: text.replace('"now"', '"then"'), "line 2 is no event"),
        (lambda text: "\n" + text, "it is no journal"),
        (lambda text: text.replace('"journal": 1', '"journal": 7'), "it has format 7"),
    ],
)
def test_a_damaged_journal_says_where(short_tmp: Path, damage: Callable[[str], str], why: str) -> None:
    path = short_tmp / "j.jsonl"
    kept(path, 3, part_bytes=10**6).close()
    path.write_text(damage(path.read_text()))
    with pytest.raises(BadValue, match=why):
        list(replay(path))
    with pytest.raises(BadValue, match="No such file"):
        list(replay(short_tmp / "missing"))


def test_the_configuration_of_a_run_is_kept(short_tmp: Path) -> None:
    journal = Journal(short_tmp / "j.jsonl", Config(quantum_s=0.7, stop_waits_s=(1.0, 9.0)), "run")
    journal.flush()
    journal.close()
    journal.close()
    assert config_of(short_tmp / "j.jsonl") == Config(quantum_s=0.7, stop_waits_s=(1.0, 9.0))


def test_a_full_disk_eats_no_memory(short_tmp: Path) -> None:
    journal = Journal(short_tmp / "file" / "j.jsonl", Config(), "run")
    (short_tmp / "file").touch()
    for number in range(3):
        journal.note(core.LeaseLost("s"), float(number), ())
        with pytest.raises(OSError):
            journal.flush()
    held: list[Any] = journal._lines
    assert held == []
