"""The backend's sockets, and the lock that says whose they are: one for local users, one for admins, one for each hub user.

The lock is taken first and held until the process ends, however it ends; so a socket file that is there while the lock is
free is stale, unless something else listens on it. A backend that ends by itself removes the lock's file, still holding it:
who got hold of the removed file finds that the name stands for another one now, or for none, and begins again.

A hub user's socket lies in a directory of its own below `users`, which is what is mounted into containers: a directory
stays the same when the backend restarts, a socket doesn't. `users` can't be entered by other local users, so that only
who mounts a directory gives it away; inside, anybody may connect, since uids mean nothing in a container.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import stat
from collections.abc import Callable, MutableMapping

from ...errors import AddressInUse, BadAddress, BadValue
from ...protocol.address import SOCKET_NAME, Address, check_length, prepare
from ...protocol.doors import USERS_DIRECTORY, directory_of, user_of
from ...protocol.version import VERSION
from .users import ADMIN_DOOR, ALONE, USER_DOOR, Door, Sharing

_BACKLOG = 512


class Listening:
    """Takes an address and serves it. Raises `AddressInUse` if another backend does, `BadAddress` if it can't be used."""

    def __init__(self, address: Address, sharing: Sharing = ALONE) -> None:
        self.address = address
        self._everybody = sharing.everybody or address.kind == "system"
        self._admin_gid = sharing.admin_gid
        self._inherited = {one.getsockname(): one for one in sharing.inherited}
        self._servers: list[asyncio.Server] = []
        self._made: list[str] = []
        self._of_users: dict[str, asyncio.Future[asyncio.Server]] = {}
        self._protocol: Callable[[Door], asyncio.BaseProtocol] | None = None
        if address.path not in self._inherited:
            prepare(address)
        self._lock = _locked(address)

    async def start(self, protocol: Callable[[Door], asyncio.BaseProtocol]) -> None:
        """Listen; `protocol` makes that of a connection by the door it came through."""
        self._protocol = protocol
        # Local users reach a shared backend by their uid; anybody else's sockets are for their user alone.
        mode = 0o666 if self._everybody else 0o600
        admin_mode = 0o600 if self._admin_gid is None else 0o660
        for path, door, permissions in (
            (self.address.admin_path, ADMIN_DOOR, admin_mode),
            (self.address.path, USER_DOOR, mode),
        ):
            bound = self._inherited.get(path)
            if bound is None:
                bound = _bound(path, permissions, self._admin_gid if door.admin else None)
                self._made.insert(0, path)
            self._servers.append(await self._served(bound, door))

    def open_for(self, user: str) -> str:
        """Listen for one hub user alone. The directory to mount; a second time changes nothing.

        Raises `BadAddress` if that can't be, `BadValue` for a name that no user has.
        """
        directory = self.directory_of(user)
        if user in self._of_users:
            return directory
        path = os.path.join(directory, SOCKET_NAME)
        check_length(path)
        try:
            # A container's users come in by any uid; that nobody else does is what the directory above is for.
            os.makedirs(os.path.dirname(directory), mode=0o700, exist_ok=True)
            os.makedirs(directory, mode=0o755, exist_ok=True)
            os.chmod(directory, 0o755)
        except OSError as error:
            raise BadAddress(f"cannot make {directory!r} for hub user {user}: {error.strerror}") from error
        above = os.lstat(os.path.dirname(directory))
        if not stat.S_ISDIR(above.st_mode) or above.st_uid != os.geteuid() or above.st_mode & 0o077:
            raise BadAddress(f"cannot use {os.path.dirname(directory)!r}: it must be ours, a directory, and mode 0700")
        bound = _bound(path, 0o666, None)
        bound.listen(_BACKLOG)  # from now on: who is told of the directory may connect at once
        self._of_users[user] = asyncio.ensure_future(self._served(bound, Door(hub_user=user)))
        return directory

    def close_for(self, user: str, for_ever: bool = False) -> None:
        """Take no more connections of this hub user, and remove the socket; `for_ever`: its directory, too."""
        serving = self._of_users.pop(user, None)
        if serving is not None:
            serving.add_done_callback(lambda done: done.result().close())
            _unlink(os.path.join(self.directory_of(user), SOCKET_NAME))
        if for_ever:
            try:
                os.rmdir(self.directory_of(user))
            except FileNotFoundError:
                return  # there was none
            except OSError as error:
                raise BadAddress(f"cannot remove {self.directory_of(user)!r}: {error.strerror}") from error

    def directory_of(self, user: str) -> str:
        """Where the socket of a hub user lies. Raises `BadValue`."""
        return directory_of(self.address.path, user)

    def appeared(self) -> list[str]:
        """The users whose directories are there without a socket: made by who mounts them, which only root and we can."""
        try:
            names = os.listdir(os.path.join(os.path.dirname(self.address.path), USERS_DIRECTORY))
        except OSError:
            return []
        found = []
        for name in names:
            try:
                user = user_of(name)
            except BadValue:
                continue  # no user's
            if user not in self._of_users:
                found.append(user)
        return found

    def stop(self) -> None:
        """Take no more connections and remove the sockets, the user's first: nobody finds half a backend. Those that the
        service manager made stay its."""
        for server in self._servers:
            server.close()
        for path in self._made:
            _unlink(path)
        for user in list(self._of_users):
            self.close_for(user)

    def release(self) -> None:
        """Let the address go; the last thing that a backend does."""
        try:
            os.unlink(self.address.lock_path)
        except OSError:
            pass  # somebody else removed it, or its directory may not be written any more: it is in nobody's way
        os.close(self._lock)

    async def _served(self, bound: socket.socket, door: Door) -> asyncio.Server:
        protocol = self._protocol
        assert protocol is not None
        loop = asyncio.get_running_loop()
        return await loop.create_unix_server(lambda: protocol(door), sock=bound, backlog=_BACKLOG)


def inherited_sockets(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """The listening sockets that a service manager passed to this very process; taken out of `environ`, since children
    have no part in them."""
    count, pid = environ.pop("LISTEN_FDS", ""), environ.pop("LISTEN_PID", "")
    environ.pop("LISTEN_FDNAMES", None)
    if not count.isdigit() or pid != str(os.getpid()):
        return []
    found = []
    for descriptor in range(3, 3 + int(count)):
        os.set_inheritable(descriptor, False)
        one = socket.socket(fileno=descriptor)
        one.setblocking(False)
        found.append(one)
    return found


def _locked(address: Address) -> int:
    while True:
        lock = _opened(address)
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
        if _stands_for(address.lock_path, lock):
            break
        # Its owner ended between our two calls and has taken the file away.
        os.close(lock)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()} {VERSION}\n".encode(), 0)
    return lock


def _opened(address: Address) -> int:
    try:
        return os.open(address.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise BadAddress(f"cannot use the lock {address.lock_path!r}: {error.strerror}") from error


def _stands_for(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _bound(path: str, permissions: int, gid: int | None) -> socket.socket:
    _remove(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Made with its rights from the first moment. A change of its mode by name would follow a link that somebody put there
    # meanwhile: a container that may write in its directory, against our advice.
    before = os.umask(0o777 & ~permissions)
    try:
        made.bind(path)
    except OSError as error:
        made.close()
        raise BadAddress(f"cannot listen at {path!r}: {error.strerror}", {"path": path}) from error
    finally:
        os.umask(before)
    try:
        if gid is not None:
            os.chown(path, -1, gid, follow_symlinks=False)
    except OSError as error:
        made.close()
        raise BadAddress(f"cannot give {path!r} to group {gid}: {error.strerror}", {"path": path}) from error
    made.setblocking(False)
    return made


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # newer versions of asyncio remove it themselves


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
