"""The sentences of the journal, kept: a bounded ring in memory, and a file from which the next backend goes on.

An entry that still grows (a run of hand-overs) is written again under its number when it has changed; who reads the file
takes the last line of each number. The file is written anew when it has grown to several times what is kept.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .clock import Clock

KEPT = 2000
#: Bytes of the file after which it is written anew with the entries that are kept.
FILE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Mentioned:
    """A session that an entry speaks of, as it was known then: its public id, its notebook, its owner's key and name."""

    id: str
    name: str
    owner: str
    user: str


@dataclass
class Entry:
    """One sentence: when (absolute, of its last change), and what happened. `text` has `{session:ID}` and `{user:ID}` for
    the sessions in `about`, since who may read a name depends on who reads.

    `run` names what further entries of the same kind are counted into this one, `count` how many it stands for.
    """

    number: int
    at: float
    text: str
    about: dict[str, Mentioned] = field(default_factory=dict)
    run: str | None = None
    count: int = 1

    def told(self, owner: str | None = None, users: bool = True) -> dict[str, Any]:
        """As `ask journal` answers it. `owner`: the reader's key, None for one who may know all; `users`: whether others'
        names may be told. `session` is there where it is about one alone, `sessions` are those whose names are known."""
        text = self.text
        known: dict[str, str] = {}
        for core_id, one in self.about.items():
            own = owner is None or owner == one.owner
            user = one.user if own or users else "another user"
            name = one.name if own else f"a notebook of {user}" if users else "another user's notebook"
            text = text.replace(f"{{session:{core_id}}}", name).replace(f"{{user:{core_id}}}", user)
            if own:
                known[one.id] = one.name
        only = next(iter(self.about.values())).id if len(self.about) == 1 else None
        return {"at": self.at, "session": only, "sessions": known, "text": text}


class Chronicle:
    """Entries, oldest first. `path`: the file in which they outlive the backend; None keeps them in memory alone."""

    def __init__(self, clock: Clock, path: Path | None = None, kept: int = KEPT, file_bytes: int = FILE_BYTES) -> None:
        self._clock = clock
        self._path = path
        self._file_bytes = file_bytes
        self._entries: deque[Entry] = deque(_read(path) if path is not None else (), maxlen=kept)
        self._first = self._number = self._entries[-1].number + 1 if self._entries else 0
        self._unwritten: dict[int, Entry] = {}
        #: Bytes that were added to the file; None before the first time, when it is written anew: it may end in half a line.
        self._added: int | None = None

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @property
    def last(self) -> Entry | None:
        """The youngest entry, unless it is of an earlier backend: nothing is counted into those any more."""
        return self._entries[-1] if self._entries and self._entries[-1].number >= self._first else None

    def add(self, text: str, about: dict[str, Mentioned], run: str | None = None) -> None:
        """A new entry, of now."""
        entry = Entry(self._number, self._clock.wall(), text, about, run)
        self._number += 1
        self._entries.append(entry)
        self._unwritten[entry.number] = entry

    def changed(self, entry: Entry) -> None:
        """The last entry says something else now."""
        entry.at = self._clock.wall()
        self._unwritten[entry.number] = entry

    def flush(self) -> None:
        """Write what isn't written yet. Raises `OSError`, and has let go of it then: a full disk doesn't eat memory."""
        entries, self._unwritten = list(self._unwritten.values()), {}
        if self._path is None or not entries:
            return
        if self._added is None or self._added > self._file_bytes:
            self._write_anew(self._path)
            return
        text = "".join(map(_line, entries))
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)
        self._added += len(text)

    def _write_anew(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = path.with_name(f"{path.name}.new")
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.writelines(map(_line, self._entries))
        made.replace(path)
        self._added = 0


def _line(entry: Entry) -> str:
    return json.dumps(asdict(entry), separators=(",", ":")) + "\n"


def _read(path: Path) -> list[Entry]:
    """What an earlier backend wrote; a line that is none is what it was writing when it was killed."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found: dict[int, Entry] = {}
    for line in lines:
        try:
            values = json.loads(line)
            about = {core_id: Mentioned(**one) for core_id, one in values.pop("about").items()}
            entry = Entry(about=about, **values)
            found[int(entry.number)] = entry
        except (AttributeError, KeyError, TypeError, ValueError):
            continue
    return [found[number] for number in sorted(found)]
