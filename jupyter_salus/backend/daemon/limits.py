"""Shares and limits of users and groups: read from a file, resolved for one user.

The file is TOML with a table `default`, and tables `groups.NAME` and `users.NAME`, each with some of the fields of `Limits`.
For one user the default holds, then the most that any of their groups gives, then what the spawn hook gave, then the
user's own table; field by field. `"unlimited"` takes a limit away that would hold otherwise.
"""

from __future__ import annotations

import math
import os
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import BadValue
from ..devices.size import parse_bytes

#: From the lowest.
PRIORITIES = ("low", "normal", "high")
UNLIMITED = "unlimited"
#: Of a limits file.
MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What one user may have. `weight`: their share beside other users'; None: no limit. `persistent_bytes` on each device,
    `host_bytes` of host memory for what is evicted."""

    weight: float = 1.0
    max_priority: str = "high"
    max_sessions: int | None = None
    persistent_bytes: int | None = None
    host_bytes: int | None = None

    def capped(self, priority: str) -> str:
        """This priority, or the highest that the user may have."""
        return min(priority, self.max_priority, key=PRIORITIES.index)

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


#: Some fields of `Limits`, by name.
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a file says."""

    default: Entry = field(default_factory=dict)
    groups: Mapping[str, Entry] = field(default_factory=dict)
    users: Mapping[str, Entry] = field(default_factory=dict)

    def of(self, user: str, groups: Iterable[str], given: Entry | None = None) -> Limits:
        """What holds for this user, who is in these groups; `given` comes from a spawn hook."""
        merged = dict(self.default)
        merged.update(_most([self.groups[one] for one in groups if one in self.groups]))
        merged.update(given or {})
        merged.update(self.users.get(user, {}))
        return replace(Limits(), **merged)


def read(path: Path) -> Rules:
    """The rules of a file. Raises `BadValue` that names the table and the field, `OSError`."""
    try:
        content = tomllib.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise BadValue(f"cannot read the limits in {path}: {error}") from error
    unknown = content.keys() - {"default", "groups", "users"}
    if unknown:
        raise BadValue(f"cannot use {', '.join(sorted(unknown))} in {path}: there is default, groups and users")
    return Rules(
        entry(content.get("default", {}), f"default in {path}"),
        _entries(content.get("groups", {}), "groups", path),
        _entries(content.get("users", {}), "users", path),
    )


def _text(path: Path) -> str:
    """What a file says that is one, and no longer than a person would write; anything else could hold up the backend."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise BadValue(f"cannot read the limits in {path}: it isn't a file")
    with open(descriptor, "rb") as file:
        if found.st_size > MAX_BYTES:
            raise BadValue(f"cannot read the limits in {path}: it has {found.st_size} bytes, the limit is {MAX_BYTES}")
        return file.read(MAX_BYTES).decode("utf-8")


def entry(found: object, where: str) -> Entry:
    """One table, checked. Raises `BadValue`; `where` names it."""
    if not isinstance(found, dict):
        raise BadValue(f"cannot use {where}: a table is needed, not {found!r}"[:300])
    made: dict[str, Any] = {}
    for name, value in found.items():
        check = _CHECKS.get(name)
        if check is None:
            raise BadValue(f"cannot set {str(name)[:80]!r} for {where}: there is {', '.join(_CHECKS)}")
        try:
            made[name] = check(value)
        except (ValueError, TypeError, BadValue) as error:
            raise BadValue(f"cannot set {name} for {where} to {value!r}: {error}"[:300]) from error
    return made


def _entries(found: object, kind: str, path: Path) -> dict[str, Entry]:
    if not isinstance(found, dict):
        raise BadValue(f"cannot use {kind} in {path}: tables like [{kind}.NAME] are needed")
    return {name: entry(one, f"{kind}.{name} in {path}") for name, one in found.items()}


def _most(entries: list[Entry]) -> Entry:
    """The most that any of these gives, field by field. Where none says a field, it is left out."""
    most: dict[str, Any] = {}
    for one in entries:
        for name, value in one.items():
            if name not in most or _rank(name, value) > _rank(name, most[name]):
                most[name] = value
    return most


def _rank(name: str, value: Any) -> float:
    if name == "max_priority":
        return PRIORITIES.index(value)
    return math.inf if value is None else float(value)


def _weight(value: Any) -> float:
    if type(value) not in (int, float) or not 0.01 <= value <= 100:
        raise ValueError("a number from 0.01 to 100 is needed")
    return float(value)


def _priority(value: Any) -> str:
    if value not in PRIORITIES:
        raise ValueError(f"one of {', '.join(PRIORITIES)} is needed")
    return str(value)


def _count(value: Any) -> int | None:
    if value == UNLIMITED:
        return None
    if type(value) is not int or value < 0:
        raise ValueError(f"a whole number from 0 or {UNLIMITED!r} is needed")
    return value


def _bytes(value: Any) -> int | None:
    if isinstance(value, str) and value != UNLIMITED:
        return parse_bytes(value)
    return _count(value)


_CHECKS = {
    "weight": _weight,
    "max_priority": _priority,
    "max_sessions": _count,
    "persistent_bytes": _bytes,
    "host_bytes": _bytes,
}
