"""Whoever is quicker than a kernel that restarts doesn't get its session, nor one of a backend that was restarted."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from jupyter_salus.backend.daemon.claims import KEPT, KEPT_S, RENEWED_S, Claims
from jupyter_salus.backend.daemon.records import MAX_RECORDS, Records
from jupyter_salus.backend.daemon.users import Owner
from jupyter_salus.errors import NotAllowed
from jupyter_salus.protocol.messages import Announce
from tests.hub.conftest import ADA, Shared

ANNA, BERT = Owner("hub:anna", "anna"), Owner("hub:bert", "bert")
LOG = logging.getLogger("claims")


def kept(shared: Shared) -> str:
    return "".join(one.read_text() for one in shared.state_directory.glob("claims*.jsonl"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can come as another user")
def test_a_session_that_ended_and_one_of_an_earlier_backend_are_their_owners(shared: Shared, wait_until) -> None:
    anna, bert = shared.door_of("anna"), shared.door_of("bert")
    kernel = shared.contained(anna, ADA, session="k1")
    kernel.hear("welcome")
    shared.at(anna, {"role": "guest", "session": "k2"}).hear("welcome")
    kernel.close()
    shared.until("k1", lambda row: row is None)

    def squatted(session: str) -> str:
        return str(shared.at(bert, {"role": "guest", "session": session}).hear("failed")["code"])

    assert squatted("k1") == "not_allowed"
    shared.at(anna, {"role": "guest", "session": "k1"}).hear("welcome")
    wait_until(lambda: all(id in kept(shared) for id in ('"k1"', '"k2"')), "the claims to be kept")
    shared.kill()
    shared.start()
    assert [squatted("k1"), squatted("k2")] == ["not_allowed", "not_allowed"]
    assert "of bert: cannot use session 'k2'" in shared.log()
    shared.at(anna, {"role": "guest", "session": "k2"}).hear("welcome")


class Day:
    """Absolute time, as it is set."""

    now = 1e9

    def wall(self) -> float:
        return self.now


def test_an_id_is_free_again_after_a_while_and_not_while_its_session_lives(tmp_path: Path) -> None:
    day = Day()
    claims = Claims(tmp_path / "claims", day.wall, LOG)
    claims.claim("s", ANNA)
    day.now += KEPT_S - 1
    claims.save([("s", ANNA)])
    day.now += KEPT_S - 1
    with pytest.raises(NotAllowed, match="cannot use session 's': it was somebody else's a moment ago, this is bert"):
        claims.claim("s", BERT)
    day.now += 1
    claims.claim("s", BERT)


def test_claims_outlive_the_backend(tmp_path: Path) -> None:
    day = Day()
    first = Claims(tmp_path / "claims", day.wall, LOG)
    first.claim("s", ANNA)
    first.save([])
    day.now += RENEWED_S
    assert (tmp_path / "claims").stat().st_mode & 0o077 == 0
    second = Claims(tmp_path / "claims", day.wall, LOG)
    with pytest.raises(NotAllowed):
        second.claim("s", BERT)
    second.claim("s", ANNA)


@pytest.mark.parametrize("content", ["", "[]", '{"s": 1}', '{"s": ["k"]}', '{"s": ["k", "x"]}', "[" * 100_000])
def test_a_damaged_file_protects_nobody_and_harms_nobody(tmp_path: Path, content: str, caplog) -> None:
    (tmp_path / "claims").write_text(content)
    Claims(tmp_path / "claims", Day().wall, LOG).claim("s", BERT)
    assert "can't be read" in caplog.text


def test_who_claims_very_many_loses_the_oldest_and_nobody_else_any(tmp_path: Path) -> None:
    claims = Claims(None, Day().wall, LOG)
    claims.claim("hers", ANNA)
    for number in range(KEPT + 1):
        claims.claim(f"s{number}", BERT)
    claims.claim("s0", ANNA)
    with pytest.raises(NotAllowed):
        claims.claim("hers", BERT)


def test_one_user_fills_no_state_for_all(tmp_path: Path) -> None:
    """Sessions whose connection is closed count while their process is there: else one process could make any number."""
    records = Records()

    def announced(number: int, owner: Owner) -> None:
        record = records.announced(Announce(0, f"s{number}", "t" * 10, 1), owner, "host", 0.0)
        records.entered(record)
        record.leaving = True

    for number in range(MAX_RECORDS):
        announced(number, BERT)
    with pytest.raises(NotAllowed, match=f"cannot open another session: bert has {MAX_RECORDS}, the limit"):
        announced(MAX_RECORDS, BERT)
    announced(MAX_RECORDS + 1, ANNA)
