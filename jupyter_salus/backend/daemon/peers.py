"""Who is at the other end of a socket, and when that process ends.

Credentials come from the kernel, never from the peer. The process is watched by a pidfd, since the socket's end alone
says too little: a forked child keeps a copy of it open after its parent was killed.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

_UCRED = struct.Struct("3i")
#: `SO_PEERPIDFD` (Linux 6.5): a pidfd of the very process that connected, so its number can't have been used again.
_SO_PEERPIDFD = 77


@dataclass(frozen=True, slots=True)
class Credentials:
    """`pid` is 0 where the peer is in a pid namespace that we can't see into, or the system tells none."""

    uid: int
    pid: int

    @property
    def user(self) -> str:
        """The account's name, or the number where it has none."""
        return user_name(self.uid)


def user_name(uid: int) -> str:
    """The account's name, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def credentials(connection: socket.socket) -> Credentials:
    """What the kernel recorded when the peer connected."""
    if hasattr(socket, "SO_PEERCRED"):
        pid, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return Credentials(uid, pid)
    # macOS: LOCAL_PEERCRED (level 0, option 1) has a version, then the uid; LOCAL_PEERPID is option 2.
    xucred = connection.getsockopt(0, 1, 76)
    return Credentials(struct.unpack_from("I", xucred, 4)[0], connection.getsockopt(0, 2))


def peer_pidfd(connection: socket.socket, pid: int) -> int | None:
    """A pidfd of the peer's process, or None where there is none to be had."""
    try:
        descriptor = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        return pidfd(pid)
    os.set_inheritable(descriptor, False)
    return descriptor


def pidfd(pid: int) -> int | None:
    """A pidfd of a process by its number, or None if it is gone or the system has none (macOS)."""
    if pid <= 0 or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


class Watch:
    """Calls `ended` once when the process behind a pidfd ends. Owns the descriptor."""

    def __init__(self, descriptor: int, ended: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._readable)

    def close(self) -> None:
        """Watch no longer; a second time does nothing."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _readable(self) -> None:
        self.close()
        self._ended()
