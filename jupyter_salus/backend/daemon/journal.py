"""The events given to the core, as JSON lines that replay through another core to the same decisions.

A run begins a file; a full file is set aside and the run goes on in the next one, whose first line says which part it
is. Lines are written once a second: what a killed backend didn't write is lost, and guests tell its successor what is true.
"""

from __future__ import annotations

import dataclasses
import json
import os
import types
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TextIO, get_args, get_origin, get_type_hints

from ...errors import BadValue
from ..core import events as core
from ..core.config import Config
from ..core.decisions import Decision
from ..core.events import Event

#: Bytes of a file before the next one begins, and how many older ones are kept.
PART_BYTES = 16 * 1024 * 1024
PARTS = 4
_VERSION = 1

_EVENTS: dict[str, type[Event]] = {
    cls.__name__: cls
    for cls in vars(core).values()
    if isinstance(cls, type) and issubclass(cls, Event) and cls is not Event
}
_HINTS = {cls: get_type_hints(cls) for cls in (*_EVENTS.values(), core.Profile)}


class Journal:
    """Writes at `path`; older parts lie beside it as `path.1` (the youngest) and so on."""

    def __init__(self, path: Path, config: Config, run: str, part_bytes: int = PART_BYTES) -> None:
        self.path = path
        self._config = config
        self._run = run
        self._part_bytes = part_bytes
        self._part = 0
        self._lines: list[tuple[Event, float]] = []
        self._written = 0
        self._file: TextIO | None = None

    def note(self, event: Event, now: float, decisions: Sequence[Decision]) -> None:
        """An event was handled. Kept in memory until `flush`."""
        self._lines.append((event, now))

    def flush(self) -> None:
        """Write what was noted. Raises `OSError`, and has let go of the lines then: a full disk doesn't eat memory."""
        lines, self._lines = self._lines, []
        if self._file is None:
            self._file = self._begun()
        if not lines:
            return
        text = "".join(f"{json.dumps(written(event, now), separators=(',', ':'))}\n" for event, now in lines)
        self._file.write(text)
        self._file.flush()
        self._written += len(text)
        if self._written >= self._part_bytes:
            self._file.close()
            self._part += 1
            self._file = None

    def close(self) -> None:
        """Let go of the file. What `flush` didn't write is lost."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begun(self) -> TextIO:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _set_aside(self.path)
        file = os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8")
        head = {"journal": _VERSION, "run": self._run, "part": self._part, "config": asdict(self._config)}
        file.write(json.dumps(head) + "\n")
        self._written = 0
        file.flush()
        return file


def written(event: Event, now: float) -> dict[str, Any]:
    """An event as a JSON object; what is at its default is left out."""
    line: dict[str, Any] = {"now": now, "event": type(event).__name__}
    for field in fields(event):
        value = getattr(event, field.name)
        if value != field.default:
            line[field.name] = (
                asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
            )
    return line


def read(line: dict[str, Any]) -> tuple[Event, float]:
    """The event of a JSON object, and its time. Raises `BadValue`."""
    cls = _EVENTS.get(line.get("event", ""))
    if cls is None:
        raise BadValue(f"cannot replay an event named {line.get('event')!r}")
    return _made(cls, line), float(line["now"])


def config_of(path: Path) -> Config:
    """The configuration that the run of this journal had."""
    stored = _head(path)["config"]
    values: dict[str, Any] = {}
    for field in fields(Config):
        if field.name in stored:
            value = stored[field.name]
            values[field.name] = tuple(value) if isinstance(value, list) else value
    return Config(**values)


def replay(path: str | Path) -> Iterator[tuple[Event, float]]:
    """The events of the run that `path` ends with, from its beginning. Raises `BadValue` if that is gone, or for a line
    that can't be read, unless it is the last one of a backend that was killed while writing."""
    last = Path(path)
    run, count = _head(last)["run"], int(_head(last)["part"])
    parts = [last]
    for number in range(1, count + 1):
        part = last.with_name(f"{last.name}.{number}")
        if not part.exists() or _head(part)["run"] != run:
            raise BadValue(f"cannot replay {path}: its run began in a part that isn't kept any more")
        parts.insert(0, part)
    for part in parts:
        lines = part.read_text(encoding="utf-8").splitlines(keepends=True)
        for number, line in enumerate(lines[1:], start=2):
            try:
                yield read(json.loads(line))
            except (BadValue, ValueError, KeyError, TypeError) as error:
                if part is last and number == len(lines) and not line.endswith("\n"):
                    return
                raise BadValue(f"cannot replay {part}: line {number} is no event ({error})") from error


def _head(path: Path) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            head = json.loads(file.readline())
        if head["journal"] != _VERSION:
            raise BadValue(f"cannot replay {path}: it has format {head['journal']!r}, this is {_VERSION}")
    except OSError as error:
        raise BadValue(f"cannot replay {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadValue(f"cannot replay {path}: it is no journal ({error})") from error
    found: dict[str, Any] = head
    return found


def _set_aside(path: Path) -> None:
    if not path.exists():
        return
    for number in range(PARTS - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    path.replace(path.with_name(f"{path.name}.1"))


def _made(cls: type[Any], values: dict[str, Any]) -> Any:
    made: dict[str, Any] = {}
    for field in fields(cls):
        if field.name in values:
            made[field.name] = _value(values[field.name], _HINTS[cls][field.name])
    return cls(**made)


def _value(value: Any, hint: Any) -> Any:
    kinds = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(value, dict) and core.Profile in kinds:
        return _made(core.Profile, value)
    if isinstance(value, list) and any(get_origin(kind) is tuple for kind in kinds):
        return tuple(value)
    return value
