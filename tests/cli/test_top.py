"""What `jupyter salus top` draws on a terminal as narrow as they come."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console, Group

from jupyter_salus.cli.screen import Screen

STATE = json.loads((Path(__file__).parents[1] / "wire" / "state.json").read_text())


def drawn(width: int) -> list[str]:
    """The screen's lines, as on a terminal with colours."""
    console = Console(width=width, highlight=False, force_terminal=True, color_system="standard")
    screen = Screen()
    screen._console = console
    lines = console.render_lines(Group(*screen._parts(STATE, None)))
    return ["".join(segment.text for segment in line) for line in lines]


def test_each_device_has_its_line_above_its_bar() -> None:
    lines = drawn(80)
    for device in STATE["devices"]:
        assert any(line.startswith(f"Device {device['id']} ") for line in lines)


def test_names_states_and_waits_are_whole_at_eighty_columns() -> None:
    lines = drawn(80)
    [tune] = [line for line in lines if line.startswith("tune.ipynb ")]
    assert "waiting (1)" in tune and "96 s" in tune
    assert all(len(line) <= 80 for line in lines)
