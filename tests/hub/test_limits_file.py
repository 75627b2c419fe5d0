"""The file of limits as its writers leave it: half written, replaced, gone, and what isn't a file of limits at all."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from jupyter_salus.backend.core.events import Event, UserLimits
from jupyter_salus.backend.daemon.limits import MAX_BYTES, read
from jupyter_salus.backend.daemon.members import Members
from jupyter_salus.backend.daemon.records import Record, Records
from jupyter_salus.backend.daemon.shares import Shares
from jupyter_salus.backend.daemon.users import Owner
from jupyter_salus.errors import BadValue

LIMITED = "[default]\nmax_sessions = 3\n"
WHOLE = f"{LIMITED}[users.anna]\nmax_sessions = 1\n"


class Read:
    """Shares by a file, looked at as the backend does once a second."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "limits.toml"
        self.file.write_text(LIMITED)
        self.told: list[Event] = []
        log = logging.getLogger("limits")
        members = Members(directory / "members.json", log)
        self.shares = Shares(self.file, members, Records(), lambda: 0.0, self.told.append, log)

    def most_after_a_look(self) -> int | None:
        self.shares.look()
        return self.shares.of("anna").max_sessions


@pytest.fixture
def limits(tmp_path: Path) -> Read:
    return Read(tmp_path)


def test_a_file_that_is_being_written_is_read_when_it_stands(limits: Read) -> None:
    limits.file.write_text("")  # as an editor does first; by itself it would lift every limit
    assert limits.most_after_a_look() == 3
    limits.file.write_text(WHOLE)
    assert limits.most_after_a_look() == 3
    assert limits.most_after_a_look() == 1


def test_a_file_that_is_gone_limits_nobody_and_one_that_comes_back_does(limits: Read) -> None:
    limits.file.unlink()
    assert [limits.most_after_a_look() for _ in range(2)] == [3, None]
    limits.file.write_text(WHOLE)
    assert [limits.most_after_a_look() for _ in range(2)] == [None, 1]


def test_a_change_is_told_to_the_core_for_users_who_are_there(limits: Read) -> None:
    limits.shares.opening(Record("s", Owner("1", "anna"), 1, "host", 0.0))
    limits.file.write_text("[users.anna]\nweight = 5\n")
    assert [limits.most_after_a_look() for _ in range(2)] == [3, None]
    assert [one.weight for one in limits.told if isinstance(one, UserLimits)] == [1.0, 5.0]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[users.anna\n", "Expected ']'"),
        ("[users.anna]\nmax_sessions = 1\nmax_sess", "Expected '='"),
        ("a = " + "[" * 50_000, "recursion"),
        ("# " + "x" * MAX_BYTES, f"the limit is {MAX_BYTES}"),
        ("[group.course]\nweight = 1\n", "cannot use group"),
        ("[users]\nanna = 3\n", "a table is needed"),
        ("[users.anna]\nweight = inf\n", "from 0.01 to 100"),
        ("[users.anna]\nmax_sessions = true\n", "a whole number"),
        ("[users.anna]\nhost_bytes = -1\n", "a whole number"),
        ("[users.anna]\nadmin = true\n", "cannot set 'admin'"),
    ],
)
def test_what_cannot_be_used_is_named_and_changes_nothing(limits: Read, content: str, why: str, caplog) -> None:
    limits.file.write_text(content)
    assert [limits.most_after_a_look() for _ in range(2)] == [3, 3]
    (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.startswith("The limits stay as they were: cannot ")
    assert str(limits.file) in said
    assert why in said


def test_what_is_no_file_or_no_text_is_named_and_waits_for_nobody(tmp_path: Path) -> None:
    """A pipe that nobody writes to would hold up the backend, and with it everybody."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("bytes", "directory", "pipe"):
        with pytest.raises(BadValue, match=f"cannot read the limits in {tmp_path / name}"):
            read(tmp_path / name)
