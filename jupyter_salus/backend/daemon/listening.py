"""The backend's two sockets, and the lock that says whose they are.

The lock is taken first and held until the process ends, however it ends; so a socket file that is there while the lock is
free is stale, unless something else listens on it. The lock's file stays: who removed it could lock out nobody.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import stat
from collections.abc import Callable

from ...errors import AddressInUse, BadAddress
from ...protocol.address import Address, prepare
from ...protocol.version import VERSION

_BACKLOG = 512


class Listening:
    """Takes an address and serves it. Raises `AddressInUse` if another backend does, `BadAddress` if it can't be used."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._servers: list[asyncio.Server] = []
        self._sockets: list[socket.socket] = []
        prepare(address)
        self._lock = _locked(address)

    async def start(self, user: Callable[[], asyncio.Protocol], admin: Callable[[], asyncio.Protocol]) -> None:
        """Listen; `user` and `admin` make the protocol of a connection."""
        loop = asyncio.get_running_loop()
        # Local users reach a system's backend by their uid; anybody else's sockets are for their user alone.
        mode = 0o666 if self.address.kind == "system" else 0o600
        for path, factory, permissions in (
            (self.address.admin_path, admin, 0o600),
            (self.address.path, user, mode),
        ):
            bound = _bound(path, permissions)
            self._sockets.append(bound)
            self._servers.append(await loop.create_unix_server(factory, sock=bound, backlog=_BACKLOG))

    def stop(self) -> None:
        """Take no more connections and remove the sockets, the user's first: nobody finds half a backend."""
        for server in self._servers:
            server.close()
        if self._sockets:
            for path in (self.address.path, self.address.admin_path):
                try:
                    os.unlink(path)
                except FileNotFoundError:
                    pass  # newer versions of asyncio remove it themselves

    def release(self) -> None:
        """Let the address go; the last thing that a backend does."""
        os.close(self._lock)


def _locked(address: Address) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        lock = os.open(address.lock_path, flags, 0o600)
    except OSError as error:
        raise BadAddress(f"cannot use the lock {address.lock_path!r}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(lock, 200, 0).decode("utf-8", "replace").split()
        os.close(lock)
        pid, version = owner if len(owner) == 2 else ("unknown", "unknown")
        raise AddressInUse(
            f"cannot serve {address.path}: a backend with pid {pid} and version {version} serves it already",
            {"path": address.path, "pid": pid, "version": version},
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()} {VERSION}\n".encode(), 0)
    return lock


def _bound(path: str, permissions: int) -> socket.socket:
    _remove(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Made without any right for anybody, so that nobody can be in before its mode is set.
    before = os.umask(0o777)
    try:
        made.bind(path)
    except OSError as error:
        made.close()
        raise BadAddress(f"cannot listen at {path!r}: {error.strerror}", {"path": path}) from error
    finally:
        os.umask(before)
    os.chmod(path, permissions)
    made.setblocking(False)
    return made


def _remove(path: str) -> None:
    """Remove a socket that nobody serves. Raises `BadAddress` for one that somebody does, and for what isn't a socket."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise BadAddress(f"cannot listen at {path!r}: something that isn't a socket is there", {"path": path})
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            os.unlink(path)
            return
    raise BadAddress(f"cannot listen at {path!r}: something that isn't a backend listens there", {"path": path})
