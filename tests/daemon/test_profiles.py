"""What is kept between runs, and that its loss or damage harms nobody."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from jupyter_salus.backend.core.events import Profile, SessionOpened
from jupyter_salus.backend.daemon import profiles
from jupyter_salus.backend.daemon.journal import replay
from jupyter_salus.backend.daemon.profiles import Profiles
from tests.daemon.speaking import Daemon

LOG = logging.getLogger("profiles")


def row(**values: Any) -> dict[str, Any]:
    return {"turns": 3, "used_s": 10.0, "iterations": 100, "peak_ephemeral_bytes": 5000, **values}


def test_a_run_teaches_the_next_one(short_tmp: Path) -> None:
    path = short_tmp / "p.json"
    kept = Profiles(path, LOG)
    for used_s in range(1, 8):
        kept.learn("7", "a.ipynb", row(used_s=float(used_s)))
    kept.save()
    again = Profiles(path, LOG)
    assert again.profile("7", "a.ipynb") == Profile(
        ephemeral_bytes=5000, iteration_s=0.07, durations_s=(3.0, 4.0, 5.0, 6.0, 7.0)
    )
    assert again.profile("8", "a.ipynb") is None
    assert again.profile("7", None) is None
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_run_without_a_turn_teaches_nothing(short_tmp: Path) -> None:
    kept = Profiles(short_tmp / "p.json", LOG)
    kept.learn("7", "a.ipynb", row(turns=0))
    kept.learn("7", None, row())
    kept.save()
    assert not (short_tmp / "p.json").exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"profiles": 1}',
        '{"profiles": 99, "notebooks": {}, "sessions": {}}',
        '{"profiles": 1, "notebooks": [], "sessions": {}}',
        '{"profiles": 1, "notebooks": {"7:a.ipynb": 5}, "sessions": {"7:s": 1}}',
    ],
)
def test_a_damaged_file_is_an_empty_one(short_tmp: Path, content: str) -> None:
    path = short_tmp / "p.json"
    path.write_text(content)
    kept = Profiles(path, LOG)
    assert kept.profile("7", "a.ipynb") is None
    assert kept.wishes("7", "s") is None
    kept.wish("7", "s", "low", True)
    assert Profiles(path, LOG).wishes("7", "s") == ("low", True)


def test_wrong_figures_in_the_file_are_left_out(short_tmp: Path) -> None:
    path = short_tmp / "p.json"
    path.write_text(
        '{"profiles": 1, "sessions": {"7:s": {"priority": "urgent"}}, "notebooks": '
        '{"7:a": {"ephemeral_bytes": -1, "iteration_s": "x", "durations_s": [1, "y", 0, 2.5]}}}'
    )
    kept = Profiles(path, LOG)
    assert kept.profile("7", "a") == Profile(durations_s=(1.0, 2.5))
    assert kept.wishes("7", "s") is None


def test_what_was_not_seen_for_longest_goes_first(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "KEPT", 2)
    kept = Profiles(short_tmp / "p.json", LOG)
    for notebook in ("a", "b", "a", "c"):
        kept.learn("7", notebook, row())
    assert [kept.profile("7", one) is not None for one in "abc"] == [True, False, True]


def test_a_place_that_can_not_be_written_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    Profiles(Path("/proc/none/p.json"), LOG).wish("7", "s", "low", False)
    assert "can't be kept" in caplog.text


def test_the_core_is_told_what_an_earlier_run_of_the_notebook_taught(daemon: Daemon) -> None:
    for run in range(2):
        if run:
            daemon.start()
        guest = daemon.guest_process("s1", {"path": "x/a.ipynb"})
        guest.say({"kind": "turn_wanted", "ticket": 1})
        epoch = guest.hear("turn_granted")["epoch"]
        guest.say({"kind": "progress", "epoch": epoch, "iterations": 10, "busy_s": 0.1})
        daemon.until("s1", lambda row: row is not None and row["iterations"] == 10)
        guest.say({"kind": "turn_released", "epoch": epoch})
        daemon.until("s1", lambda row: row is not None and row["state"] == "holding")
        guest.process.kill()
        daemon.until("s1", lambda row: row is None)
        assert daemon.stop() == 0
    opened = [event for event, _ in replay(next(daemon.state_directory.glob("journal*.jsonl")))]
    profile = next(event.profile for event in opened if isinstance(event, SessionOpened))
    assert profile is not None
    assert len(profile.durations_s) == 1
