"""A backend's journal, replayed: the same decisions as the backend made."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import pytest

from benchmarks.policies import WORKLOADS, Bench
from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.config import Config
from jupyter_salus.backend.core.decisions import Decision
from jupyter_salus.backend.core.scheduler import Scheduler
from jupyter_salus.backend.daemon.journal import Journal
from jupyter_salus.simulate.command import main
from tests.simulate.stories import story
from tests.simulate.test_invariance import CAPACITY_MIB, beginning

CONFIG = Config(quantum_s=0.25, max_wait_s=30.0)


class Journaled(Scheduler):
    """A scheduler whose events go into a journal, as the backend's do, and whose decisions are kept."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(CONFIG)
        self._journal = journal
        self.decided: list[tuple[float, Decision]] = []

    def handle(self, event: events.Event, now: float) -> list[Decision]:
        decisions = super().handle(event, now)
        self._journal.note(event, now, decisions)
        self.decided += [(now, decision) for decision in decisions]
        return decisions


@pytest.fixture
def journaled(bench: Bench):
    journal = Journal(bench.directory / "journal.jsonl", CONFIG, "run")
    scheduler = Journaled(journal)
    story(bench, bench.trace("t", beginning(16)), WORKLOADS, "fair", CAPACITY_MIB, scheduler=scheduler)
    journal.flush()
    journal.close()
    return scheduler


def test_a_journal_gives_the_same_decisions(bench, journaled, capsys):
    log = bench.directory / "decisions"
    assert main(["--replay", str(bench.directory / "journal.jsonl"), "--log", str(log), "--json"]) == 0
    replayed = [json.loads(line) for line in log.read_text().splitlines()]
    told = [{"t": now, "decision": type(decision).__name__, **asdict(decision)} for now, decision in journaled.decided]
    made = json.loads(json.dumps(told))
    assert len(replayed) > 100
    differing = [number for number, pair in enumerate(zip(replayed, made, strict=True)) if pair[0] != pair[1]]
    assert differing == []
    shown = json.loads(capsys.readouterr().out)
    assert shown["decisions"] == Counter(type(decision).__name__ for _, decision in journaled.decided)
    assert shown["events_refused"] == 0


def test_a_journal_needs_no_trace_and_shows_sums_for_people(bench, journaled, capsys):
    assert main(["--replay", str(bench.directory / "journal.jsonl")]) == 0
    assert "GrantTurn" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "nonsense\n", '{"journal": 1}\n', '{"a": 1}\n'])
def test_what_is_no_journal_is_bad_usage(tmp_path, capsys, text):
    (tmp_path / "j.jsonl").write_text(text)
    assert main(["--replay", str(tmp_path / "j.jsonl")]) == 2
    assert "cannot replay" in capsys.readouterr().err


def test_a_journal_that_is_not_there_is_told(tmp_path, capsys):
    assert main(["--replay", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err
