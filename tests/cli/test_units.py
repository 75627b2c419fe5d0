"""Text for a terminal: whatever a notebook is named, it stays on its line and commands nothing."""

from __future__ import annotations

import argparse
import io

import pytest

from jupyter_salus.cli.execution import last_words
from jupyter_salus.cli.status import text_of
from jupyter_salus.cli.units import columns, positive, printable


def test_control_characters_are_shown_as_escapes() -> None:
    assert printable("evil\x1b[31mRED\x1b[0m\nx.ipynb") == "evil\\x1b[31mRED\\x1b[0m\\nx.ipynb"
    assert printable("right to left \u202e, half \udc80") == "right to left \\u202e, half \\udc80"
    assert printable("Übung – 数.ipynb") == "Übung – 数.ipynb"
    assert printable("two\nlines\x07", keep="\n") == "two\nlines\\x07"


def test_a_name_with_a_newline_makes_one_row() -> None:
    assert columns(("NAME", "P"), [("a\nb", "1")]).splitlines() == ["NAME  P", "a\\nb  1"]


def test_the_state_in_words_has_no_raw_control_characters() -> None:
    session: dict[str, object] = {
        "id": "0123456789",
        "name": "a\x1b[2Jb\n.ipynb",
        "path": None,
        "state": "waiting",
        "lane": None,
        "priority": "normal",
        "pinned": False,
        "persistent_bytes": 0,
        "ephemeral_bytes": 0,
        "position": 1,
        "reason": {"code": "turn", "text": "waits for c\x07.ipynb", "behind": None},
        "sharing_with": [],
        "waiting_since": None,
        "waited_s": 0.0,
        "used_s": 0.0,
        "iterations": 0,
    }
    backend = {"version": "0", "pid": 1, "started_at": 0.0}
    text = text_of({"backend": backend, "as_of": 1.0, "devices": [], "lanes": [], "sessions": [session]})
    assert all(one.isprintable() for one in text.replace("\n", ""))
    assert len(text.splitlines()) == 6


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", ""])
def test_a_number_of_things_is_one_or_more(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="cannot take"):
        positive(text)


def test_what_a_kernel_says_in_good_order_is_not_its_last_words():
    noise = io.BytesIO(b"Segmentation fault\n[IPKernelApp] WARNING | Kernel is running over TCP without encryption.\n")
    assert last_words(noise) == " (its last words: Segmentation fault)"
    assert last_words(io.BytesIO(b"[IPKernelApp] WARNING | something\n")) == ""
