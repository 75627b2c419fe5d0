"""The journal's sentences: kept over a backend's end, counted where sessions take turns, and masked for others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_salus.backend.core import decisions as decided
from jupyter_salus.backend.core import events as core
from jupyter_salus.backend.daemon.chronicle import Chronicle, Mentioned
from jupyter_salus.backend.daemon.users import Owner
from jupyter_salus.backend.daemon.words import Words
from tests.daemon.speaking import Daemon

ADA, BOB = Owner("1", "ada"), Owner("2", "bob")
OWNERS = {"a": ADA, "b": BOB}


class Standing:
    """A clock that stands."""

    def now(self) -> float:
        return 7.0

    def wall(self) -> float:
        return 1000.0


def mentioned(core_id: str) -> Mentioned:
    owner = OWNERS.get(core_id, BOB)
    return Mentioned(f"id-{core_id}", f"{core_id}.ipynb", owner.key, owner.name)


def words(path: Path | None = None, **limits: int) -> tuple[Words, Chronicle]:
    chronicle = Chronicle(Standing(), path, **limits)
    return Words(chronicle, mentioned), chronicle


def turns(*sessions: str) -> list[decided.Decision]:
    return [decided.GrantTurn(one, number, number, "lane-1") for number, one in enumerate(sessions)]


def texts(said: Words, viewer: Owner | None = None, users: bool = True) -> list[str]:
    return [entry["text"] for entry in said.entries(viewer, users)]


def test_a_run_of_turns_is_one_entry_that_names_all_who_took_part() -> None:
    said, _ = words()
    said.note(core.DeadlineReached(), 0.0, turns("a", "b", "a", "b"))
    assert texts(said) == ["a.ipynb, b.ipynb took turns in lane lane-1, 4 times, the last one b.ipynb"]
    (entry,) = said.entries()
    assert entry["sessions"] == {"id-a": "a.ipynb", "id-b": "b.ipynb"}
    assert entry["session"] is None


def test_turns_of_one_session_alone_are_counted_under_its_name() -> None:
    said, _ = words()
    said.note(core.DeadlineReached(), 0.0, turns("a", "a", "a"))
    assert texts(said) == ["a.ipynb got 3 turns in lane lane-1"]
    assert said.entries()[0]["session"] == "id-a"


def test_others_are_told_by_their_owner_or_not_at_all() -> None:
    said, _ = words()
    said.note(core.SessionOpened("b", user="bob", device="host"), 0.0, turns("a", "b"))
    assert texts(said, ADA) == [
        "a notebook of bob is there, for bob",
        "a.ipynb, a notebook of bob took turns in lane lane-1, 2 times, the last one a notebook of bob",
    ]
    assert texts(said, ADA, users=False)[0] == "another user's notebook is there, for another user"
    assert said.entries(ADA)[1]["sessions"] == {"id-a": "a.ipynb"}
    assert texts(said)[0] == "b.ipynb is there, for bob"


def test_the_next_backend_goes_on_where_the_last_one_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "words.jsonl"
    said, chronicle = words(path)
    said.add("The backend started")
    said.note(core.DeadlineReached(), 0.0, turns("a", "b"))
    chronicle.flush()
    said.note(core.DeadlineReached(), 0.0, turns("a"))
    chronicle.flush()
    with path.open("a") as file:
        file.write('{"number": 9, "at"')

    later, chronicle = words(path)
    assert texts(later) == texts(said)
    # A turn of this backend's isn't counted into an entry of the last one's.
    later.note(core.DeadlineReached(), 0.0, turns("b"))
    assert texts(later)[-1] == "b.ipynb got a turn in lane lane-1"
    chronicle.flush()
    assert texts(words(path)[0]) == texts(later)
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_keeps_no_more_than_the_ring(tmp_path: Path) -> None:
    path = tmp_path / "words.jsonl"
    said, chronicle = words(path, kept=5, file_bytes=2000)
    for number in range(100):
        said.add(f"sentence {number}")
        chronicle.flush()
    assert path.stat().st_size < 4000
    assert texts(words(path)[0])[-5:] == [f"sentence {number}" for number in range(95, 100)]


def test_what_cannot_be_written_is_said_once_and_stays_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said, chronicle = words(tmp_path / "file" / "words.jsonl")
    said.add("one")
    with pytest.raises(OSError):
        chronicle.flush()
    chronicle.flush()
    assert texts(said) == ["one"]


def test_a_killed_backends_journal_is_in_its_successors(daemon: Daemon, wait_until: Callable[..., None]) -> None:
    daemon.guest("s1", name="first.ipynb")
    with daemon.client() as client:
        file = Path(client.ask("journal")["path"])
    file = file.with_name(file.name.replace("journal", "words"))
    wait_until(lambda: file.exists() and "is there" in file.read_text())
    daemon.kill()
    for peer in daemon.peers:
        peer.close()
    daemon.start()
    with daemon.client() as client:
        told = [entry["text"] for entry in client.ask("journal")["entries"]]
    assert sum("The backend started" in text for text in told) == 2
    assert any("first.ipynb is there" in text for text in told)
