"""`status`, `top`, `journal`, `policy` and the verbs, on a backend with a session in it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator

import pytest

from jupyter_salus.cli import main
from jupyter_salus.protocol.client import Client
from jupyter_salus.protocol.messages import Announce, Launched

SESSION = "7f3d-session-of-a-notebook"
OTHER = "7f99-session-of-another"


@pytest.fixture
def sessions(backend: str) -> Iterator[Client]:
    """Two kernels as a server shows them that can't manage them: rows in the state, with names and paths."""
    with Client(backend, role="server") as server:
        for session, path in ((SESSION, "vision/train.ipynb"), (OTHER, "text/other.ipynb")):
            name = path.rpartition("/")[2]
            server.request(
                Announce, session=session, token=session, incarnation=1, kernel_id=session, name=name, path=path
            )
            server.request(Launched, session=session, unmanaged="it is a test")
        yield server


def said(capsys: pytest.CaptureFixture[str], *line: str, code: int = 0) -> str:
    """The output of a command that ends with `code`; its error output where it isn't 0."""
    assert main(list(line)) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_status_shows_device_and_sessions_with_reasons(sessions, capsys):
    text = said(capsys, "status")
    assert "Device host" in text
    assert "train.ipynb" in text
    assert "it is a test" in text


def test_status_without_sessions_says_so(backend, capsys):
    assert "No sessions." in said(capsys, "status")


def test_status_json_is_the_state(sessions, capsys):
    state = json.loads(said(capsys, "status", "--json"))
    assert {row["id"] for row in state["sessions"]} == {SESSION, OTHER}


def test_top_ends_after_the_count(sessions, capsys):
    lines = said(capsys, "top", "--count", "2", "--interval", "0.1", "--json").splitlines()
    assert [json.loads(line)["devices"][0]["id"] for line in lines] == ["host", "host"]


def test_top_on_a_terminal_is_a_screen_that_q_ends(sessions, backend):
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    line = [sys.executable, "-m", "jupyter_salus.cli", "top", "--socket", backend, "--interval", "0.2"]
    process = subprocess.Popen(line, stdin=inside, stdout=inside, stderr=inside, env={**os.environ, "TERM": "xterm"})
    os.close(inside)
    seen = b""
    try:
        while b"other.ipynb" not in seen or b"it is a test" not in seen:
            seen += os.read(terminal, 65536)
        os.write(terminal, b"q")
        while True:
            try:
                seen += os.read(terminal, 65536)
            except OSError:
                break  # nobody has the other end any more
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert b"Device host" in seen
    assert b"\x1b[?1049l" in seen  # the screen that was there before is shown again


@pytest.mark.parametrize(
    "wanted", [SESSION, "7f3", "vision/train.ipynb", "train.ipynb", "/home/ada/vision/train.ipynb"]
)
def test_a_session_is_meant_by_id_beginning_or_notebook(sessions, capsys, wanted):
    assert "high" in said(capsys, "priority", wanted, "high")
    rows = {row["id"]: row for row in json.loads(said(capsys, "status", "--json"))["sessions"]}
    assert (rows[SESSION]["priority"], rows[OTHER]["priority"]) == ("high", "normal")


def test_a_beginning_that_fits_two_sessions_is_bad_usage_and_names_both(sessions, capsys):
    text = said(capsys, "priority", "7f", "low", code=2)
    assert "train.ipynb" in text
    assert "other.ipynb" in text


def test_an_unknown_session_fails_and_names_what_there_is(sessions, capsys):
    assert "train.ipynb" in said(capsys, "yield", "nobody.ipynb", code=1)


def test_pin_says_that_it_changes_nothing_on_a_device_that_moves_nothing(sessions, capsys):
    assert "changes nothing as long as it is on the host device" in said(capsys, "pin", "train.ipynb")
    assert "changes nothing" not in said(capsys, "pin", "train.ipynb", "--off")


def test_what_cannot_pass_its_turn_on_is_named_by_its_notebook(sessions, capsys):
    text = said(capsys, "yield", "train.ipynb", code=1)
    assert "train.ipynb" in text
    assert SESSION not in text


def test_policy_without_a_name_tells_the_policies(backend, capsys):
    assert "host: policy fair." in said(capsys, "policy")
    assert json.loads(said(capsys, "policy", "--json"))["policies"] == {"host": "fair"}
    assert "gpu7" in said(capsys, "policy", "--device", "gpu7", code=1)


def test_pin_and_its_undoing(sessions, capsys):
    def pinned() -> bool:
        rows = json.loads(said(capsys, "status", "--json"))["sessions"]
        return next(row["pinned"] for row in rows if row["id"] == SESSION)

    said(capsys, "pin", "train.ipynb")
    assert pinned()
    said(capsys, "pin", "train.ipynb", "--off")
    assert not pinned()


def test_evict_on_a_device_that_moves_nothing_fails_with_the_reason(sessions, capsys):
    assert said(capsys, "evict", "train.ipynb", code=1).startswith("jupyter salus: cannot")


def test_an_unknown_priority_is_bad_usage(sessions, capsys):
    assert "urgent" in said(capsys, "priority", "train.ipynb", "urgent", code=2)


def test_policy_changes_the_only_device(backend, capsys):
    said(capsys, "policy", "fifo")
    assert json.loads(said(capsys, "status", "--json"))["devices"][0]["policy"] == "fifo"


def test_a_device_is_drained_with_a_reason_and_taken_back(backend, capsys):
    def draining() -> object:
        return json.loads(said(capsys, "status", "--json"))["devices"][0]["draining"]

    assert "no new turns (a new driver)" in said(capsys, "drain", "a new driver")
    assert draining() == "a new driver"
    assert "given again" in said(capsys, "drain", "--off")
    assert not draining()


def test_policy_of_an_unknown_device_fails(backend, capsys):
    assert "gpu7" in said(capsys, "policy", "fifo", "--device", "gpu7", code=1)


def test_journal_tells_what_happened_in_words(sessions, capsys):
    said(capsys, "policy", "fifo")
    assert "policy fifo" in said(capsys, "journal", "--last", "1")
    entries = json.loads(said(capsys, "journal", "--json"))["entries"]
    assert "started" in entries[0]["text"]


@pytest.fixture
def chronicled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend's answers: two sessions took turns, and one of them is gone."""
    entries = [
        {"at": 1.0, "session": None, "sessions": {}, "text": "The backend started"},
        {"at": 2.0, "session": "7a", "sessions": {"7a": "gone.ipynb"}, "text": "gone.ipynb is there"},
        {"at": 3.0, "session": None, "sessions": {"7a": "gone.ipynb", "9b": "here.ipynb"}, "text": "both took turns"},
    ]
    state = {"sessions": [{"id": "9b", "name": "here.ipynb", "path": "here.ipynb"}]}

    class Answering:
        def __enter__(self):
            return self

        def __exit__(self, *raised):
            return None

        def ask(self, what):
            return {"entries": entries} if what == "journal" else state

    monkeypatch.setattr("jupyter_salus.cli.journal.connect", lambda arguments: Answering())


def test_the_journal_of_a_notebook_has_the_turns_that_it_took_with_others(chronicled, capsys):
    assert said(capsys, "journal", "here.ipynb").splitlines()[-1].endswith("both took turns")


@pytest.mark.parametrize("wanted", ["7a", "gone.ipynb", "/home/ada/gone.ipynb"])
def test_the_journal_of_a_notebook_that_is_gone_can_be_read(chronicled, capsys, wanted):
    lines = said(capsys, "journal", wanted).splitlines()
    assert [line.split("  ")[1] for line in lines] == ["gone.ipynb is there", "both took turns"]


def test_the_journal_of_nobody_fails(chronicled, capsys):
    assert "cannot find" in said(capsys, "journal", "nobody.ipynb", code=1)


def test_doctor_finds_the_backend_and_the_packages(backend, capsys):
    main(["doctor", "--json"])
    found = {one["about"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert found["backend"]["level"] == "ok"
    assert found["packages"]["level"] == "ok"
    assert found["address"]["text"].startswith(backend)


def test_doctor_calls_a_configured_address_that_nobody_serves_a_problem(capsys, short_tmp):
    assert main(["doctor", "--socket", str(short_tmp / "none.sock")]) == 1
    assert "PROBLEM" in capsys.readouterr().out
