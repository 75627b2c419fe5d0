"""A CSV file as rows of checked values; every mistake in it is told with its line and column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import PeerError

MIB = 2**20


class MalformedFile(PeerError):
    """A file given to the simulator that can't be read; the text names file, line and column."""

    code = "malformed_file"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table. The methods take a value out of it or raise `MalformedFile` with where it stands."""

    path: str
    line: int
    values: dict[str, str]

    def fail(self, column: str, why: str) -> MalformedFile:
        """The error that says what is wrong with the value in `column`."""
        return MalformedFile(
            f"cannot read {self.path}, line {self.line}, column '{column}': {why}",
            {"path": self.path, "line": self.line, "column": column},
        )

    def has(self, column: str) -> bool:
        """An optional column is there and not empty."""
        return self.values.get(column, "") != ""

    def text(self, column: str) -> str:
        value = self.values[column]
        if not value:
            raise self.fail(column, "it is empty")
        return value

    def number(self, column: str, *, above: float | None = None, least: float = 0.0, most: float = math.inf) -> float:
        """A finite number from `least` (or greater than `above`) to `most`."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            raise self.fail(column, f"'{text}' isn't a number") from None
        if not math.isfinite(value):
            raise self.fail(column, f"'{text}' isn't a finite number")
        if above is not None and value <= above:
            raise self.fail(column, f"{text} isn't above {above:g}")
        if value < least:
            raise self.fail(column, f"{text} is below {least:g}")
        if value > most:
            raise self.fail(column, f"{text} is above {most:g}")
        return value

    def whole(self, column: str, *, least: int = 0) -> int:
        """A whole number from `least`."""
        text = self.text(column)
        try:
            value = int(text)
        except ValueError:
            raise self.fail(column, f"'{text}' isn't a whole number") from None
        if value < least:
            raise self.fail(column, f"{text} is below {least}")
        return value

    def mib(self, column: str) -> int:
        """MiB as bytes."""
        return round(self.number(column) * MIB)

    def choice(self, column: str, allowed: tuple[str, ...]) -> str:
        text = self.text(column)
        if text not in allowed:
            raise self.fail(column, f"'{text}' is none of {', '.join(allowed)}")
        return text


def read_rows(path: Path, required: tuple[str, ...]) -> Iterator[Row]:
    """The rows of the CSV file at `path`, which has at least the `required` columns; others are passed over by the callers.

    Raises `MalformedFile` for a file that can't be opened, isn't UTF-8 text, lacks a column or has a row of another length.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise MalformedFile(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        column = error.start - (error.object.rfind(b"\n", 0, error.start) + 1) + 1
        raise MalformedFile(f"cannot read {path}, line {line}, column {column}: it isn't UTF-8 text") from None
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        for name in required:
            if name not in header:
                raise MalformedFile(f"cannot read {path}, line 1, column '{name}': the header lacks it")
        for position, name in enumerate(header):
            if name in header[:position]:
                raise MalformedFile(f"cannot read {path}, line 1, column {position + 1}: '{name}' is there twice")
        for fields in reader:
            if not fields:
                continue
            if len(fields) < len(header):
                missing = header[len(fields)]
                raise MalformedFile(
                    f"cannot read {path}, line {reader.line_num}, column '{missing}': the row ends before it"
                )
            if len(fields) > len(header):
                raise MalformedFile(
                    f"cannot read {path}, line {reader.line_num}, column {len(header) + 1}: the header has {len(header)} columns"
                )
            values = {name: field.strip() for name, field in zip(header, fields, strict=True)}
            yield Row(str(path), reader.line_num, values)
    except csv.Error as error:
        raise MalformedFile(f"cannot read {path}, line {reader.line_num}, column 1: {error}") from None
