"""Users whom somebody at the admin door made known: their groups, limits and sockets, kept over restarts of the backend.

A hub's groups are known to the hub alone; its spawn hook tells them here. A socket that was made for a hub user is made
again by the next backend, since the containers that it is mounted into live on.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import BadValue, SalusError
from .limits import Entry, entry

#: Users kept; beyond that no further one is taken.
KEPT = 20_000
GROUPS = 500


@dataclass(frozen=True, slots=True)
class Member:
    """`socket`: a socket of their own is there, for containers. `hub_user`: what the hub calls them, where their account has
    another name."""

    groups: tuple[str, ...] = ()
    limits: Entry = field(default_factory=dict)
    socket: bool = False
    hub_user: str | None = None


class Members:
    """By name. Written at once and whole, so that a reader finds the old or the new file; a failure is logged."""

    def __init__(self, path: Path, log: logging.Logger) -> None:
        self._path = path
        self._log = log
        self._members = _read(path, log)

    def __getitem__(self, name: str) -> Member:
        """What is known of this user; nothing, of most."""
        return self._members.get(name, _NOBODY)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def names(self) -> list[str]:
        """Of all, in the order in which they were made known."""
        return list(self._members)

    def tell(self, name: str, value: str | None) -> Member:
        """Somebody says of a user, as a JSON object, their `groups`, `limits`, whether they need a `socket`, and what a hub
        calls them (`hub_user`); what it leaves out stays as it is. Raises `BadValue`."""
        if not 0 < len(name) <= 255:
            raise BadValue(f"cannot know a user whose name has {len(name)} characters: 1 to 255 are needed")
        if name not in self._members and len(self._members) >= KEPT:
            raise BadValue(f"cannot know another user: there are {KEPT}, the limit")
        try:
            said = json.loads(value or "{}")
        except ValueError as error:
            raise BadValue(f"cannot read what is said of user {name}: {error}") from error
        self._members[name] = _member(said, self[name], f"user {name}")
        self._save()
        return self[name]

    def forget(self, name: str) -> bool:
        """The user is gone from the hub; False if nothing was known of them."""
        known = self._members.pop(name, None) is not None
        if known:
            self._save()
        return known

    def _save(self) -> None:
        made = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                json.dump({name: asdict(one) for name, one in self._members.items()}, file, separators=(",", ":"))
            made.replace(self._path)
        except OSError as error:
            self._log.warning("What is known of users can't be kept in %s: %s", self._path, error)


_NOBODY = Member()


def _member(said: Any, before: Member, where: str) -> Member:
    if not isinstance(said, dict) or said.keys() - {"groups", "limits", "socket", "hub_user"}:
        raise BadValue(
            f"cannot use what is said of {where}: an object of groups, limits, socket and hub_user is needed"
        )
    groups = said.get("groups", list(before.groups))
    if not isinstance(groups, list) or len(groups) > GROUPS or not all(isinstance(one, str) for one in groups):
        raise BadValue(f"cannot use the groups of {where}: a list of at most {GROUPS} names is needed")
    socket = said.get("socket", before.socket)
    if type(socket) is not bool:
        raise BadValue(f"cannot set socket of {where} to {socket!r}: true or false is needed")
    # Limits that were told are whole numbers of bytes already; checking them again changes nothing.
    limits = entry(said["limits"], f"the limits of {where}") if "limits" in said else before.limits
    hub_user = said.get("hub_user", before.hub_user)
    if hub_user is not None and not (isinstance(hub_user, str) and 0 < len(hub_user) <= 255):
        raise BadValue(
            f"cannot set hub_user of {where} to {str(hub_user)[:80]!r}: a name of 1 to 255 characters is needed"
        )
    return Member(tuple(groups), limits, socket, hub_user)


def _read(path: Path, log: logging.Logger) -> dict[str, Member]:
    try:
        content = json.loads(path.read_text("utf-8"))
        return {name: _member(_without_none(one), _NOBODY, f"user {name}") for name, one in content.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, SalusError) as error:
        log.warning("What was known of users in %s can't be read, and begins anew: %s", path, error)
        return {}


def _without_none(one: dict[str, Any]) -> dict[str, Any]:
    """JSON has null where a limit was taken away."""
    limits = {name: "unlimited" if value is None else value for name, value in one.get("limits", {}).items()}
    return {**one, "limits": limits}
