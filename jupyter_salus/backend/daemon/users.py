"""Whose a session is: known from the door that its peer came through, and from the kernel's credentials, never from words.

Three doors. The *user* door is for local Unix users: the uid says who. A *hub* door is one hub user's alone, mounted into
that user's containers, where uids mean nothing: whoever comes through it is that user. The *admin* door is for whoever may
reach it. No uid has rights by itself at a user or hub door, 0 included.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
from dataclasses import dataclass
from pathlib import Path

from .peers import Credentials


@dataclass(frozen=True, slots=True)
class Owner:
    """`key` tells owners apart (a hub user and a Unix user of one name are two), `name` is for people and for limits."""

    key: str
    name: str


NOBODY = Owner("", "nobody")


@dataclass(frozen=True, slots=True)
class Door:
    """A listening socket, as what comes in by it is to be taken. `hub_user`: whose alone it is."""

    admin: bool = False
    hub_user: str | None = None

    def owner(self, credentials: Credentials) -> Owner:
        """Whose a peer is that came through it."""
        if self.hub_user is not None:
            return Owner(f"hub:{self.hub_user}", self.hub_user)
        return Owner(str(credentials.uid), credentials.user)


@dataclass(frozen=True, slots=True)
class Sharing:
    """How a backend serves several users. `everybody`: all local users reach the user door, not the backend's own alone.
    `admin_gid`: a group whose members reach the admin door. `names_told`: users see each other's names. `inherited`:
    sockets that listen already, made by the service manager. `limits`: the file of shares and limits. `alert`:
    what uses a device without a session is warned of in the log."""

    everybody: bool = False
    admin_gid: int | None = None
    names_told: bool = True
    inherited: tuple[socket.socket, ...] = ()
    limits: Path | None = None
    alert: bool = False


ALONE = Sharing()
USER_DOOR = Door()
ADMIN_DOOR = Door(admin=True)


def groups_of(name: str) -> tuple[str, ...]:
    """The names of a Unix account's groups, its own first; none where there is no such account."""
    try:
        account = pwd.getpwnam(name)
        numbers = os.getgrouplist(account.pw_name, account.pw_gid)
    except (KeyError, OSError):
        return ()
    found = []
    for number in numbers:
        try:
            found.append(grp.getgrgid(number).gr_name)
        except KeyError:
            continue  # a number without a name limits nobody
    return tuple(found)
