"""Amounts as a person reads them: bytes in GiB and MiB, durations, and columns that line up."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from ..backend.devices.size import bytes_text


def size(amount: int | None) -> str:
    """Bytes as `1.25 GiB`; a dash where nothing is known."""
    return "–" if amount is None else bytes_text(amount)


def duration(seconds: float | None) -> str:
    """Seconds as `0.24 s`, `12 s`, `3 min 20 s`, `2 h 5 min`; a dash where nothing is known."""
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def positive(text: str) -> int:
    """For argparse: a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"cannot take {text!r}: a whole number of 1 or more is needed")
    return int(text)


def one_of(what: str, known: Sequence[str]) -> Callable[[str], str]:
    """For argparse: one of these words, in whatever case; `what` names it in the sentence about any other."""

    def chosen(text: str) -> str:
        if text.lower() not in known:
            raise argparse.ArgumentTypeError(f"cannot take {text!r} as a {what}: there are {', '.join(known)}")
        return text.lower()

    return chosen


def printable(text: str, keep: str = "") -> str:
    """Text that does nothing to a terminal: what isn't printable as an escape, so that a name stays on its line.

    Names of notebooks are whatever their owners chose, other people's among them.
    """
    return "".join(
        one if one.isprintable() or one in keep else one.encode("unicode_escape").decode("ascii") for one in text
    )


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table in text; the columns whose numbers are in `right` are flushed right."""
    lines = [list(head), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    made = []
    for line in lines:
        cells = [
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        made.append("  ".join(cells).rstrip())
    return "\n".join(made)
