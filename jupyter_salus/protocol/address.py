"""Where a backend listens: the first of the configured socket, the system's directory, and one of the user's own.

The own directory lies in `/tmp`, never below a home or Jupyter's runtime directory: those may be shared between hosts or
go at logout. The boot id in its name keeps a directory of an earlier boot from being taken for a living one. So all
servers and environments of one user on one host meet in one backend.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional

from ..errors import BadAddress

#: What `sun_path` holds on Linux, less the closing zero.
MAX_PATH_BYTES = 107
SYSTEM_DIRECTORY = "/run/jupyter-salus"
SOCKET_NAME = "backend.sock"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Address:
    """A socket path and where it comes from: `configured`, `system` or `own`. Only an own one may be started by a Manager."""

    path: str
    kind: str

    @property
    def admin_path(self) -> str:
        """The admin socket, beside the user socket; who can reach it may do everything."""
        return admin_path(self.path)

    @property
    def lock_path(self) -> str:
        """The file whose lock says that a backend serves this address; it holds the backend's pid and version."""
        return _beside(self.path, ".lck")


def find(environ: Mapping[str, str], configured: Optional[str] = None) -> Address:
    """The address that fits: the setting, `JUPYTER_SALUS_SOCKET`, the system's, the user's own. Looks, creates nothing.

    `JUPYTER_SALUS_RUN_DIR` replaces `/tmp` as the place of the own directory. Raises `BadAddress` for a path that no
    socket can have.
    """
    chosen = configured or environ.get("JUPYTER_SALUS_SOCKET")
    if chosen:
        path = os.path.abspath(os.path.expanduser(chosen))
        check_length(path)
        return Address(path, "configured")
    if _is_roots_directory(SYSTEM_DIRECTORY):
        return Address(os.path.join(SYSTEM_DIRECTORY, SOCKET_NAME), "system")
    base = environ.get("JUPYTER_SALUS_RUN_DIR") or "/tmp"
    path = os.path.join(base, f"jupyter-salus-{os.getuid()}-{_boot()}", SOCKET_NAME)
    check_length(path)
    return Address(path, "own")


def admin_path(path: str) -> str:
    """The admin socket that belongs to a user socket."""
    return _beside(path, ".adm")


def check_length(path: str) -> None:
    """Raises `BadAddress` if the user socket or its admin socket doesn't fit into a socket's name."""
    longest = max(len(os.fsencode(path)), len(os.fsencode(admin_path(path))))
    if longest > MAX_PATH_BYTES:
        raise BadAddress(
            f"cannot use the socket path {path!r}: with its admin socket it needs {longest} bytes, "
            f"the limit is {MAX_PATH_BYTES}; choose a shorter one with --socket or JUPYTER_SALUS_SOCKET",
            {"path": path, "bytes": longest, "limit": MAX_PATH_BYTES},
        )


def check(path: str) -> None:
    """Raises `BadAddress` unless a backend of this user may listen at `path`; says what is in the way.

    Too long; a directory that is missing, a symbolic link, somebody else's or unwritable; something at the path that
    isn't a socket or isn't ours. A socket of ours may be there: whether it is stale the lock says, not this.
    """
    check_length(path)
    _check_directory(path)
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _bad(path, str(error.strerror)) from error
    if stat.S_ISLNK(found.st_mode):
        raise _bad(path, "it is a symbolic link")
    if not stat.S_ISSOCK(found.st_mode):
        raise _bad(path, "something that isn't a socket is there")
    if found.st_uid != os.getuid():
        raise _bad(path, f"the socket there belongs to uid {found.st_uid}, this is uid {os.getuid()}")


def check_reachable(address: Address) -> None:
    """Raises `BadAddress` if a client shouldn't connect: the path is too long, an own address lies in a directory that
    somebody else made under our name, or others may put a socket of theirs in the place of the backend's. A missing
    directory is no error: nobody listens there yet."""
    check_length(address.path)
    directory = os.path.dirname(address.path)
    if address.kind == "own" and os.path.lexists(directory):
        _check_private(address.path)
    if address.kind == "system" and os.stat(directory).st_mode & 0o022:
        raise _bad(address.path, f"others than root may write in {directory}")


def prepare(address: Address) -> None:
    """Make the directory of an own address, 0700, if it isn't there. Raises `BadAddress` as `check` does. For backends."""
    check_length(address.path)
    if address.kind == "own":
        directory = os.path.dirname(address.path)
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise _bad(address.path, f"its directory can't be made: {error.strerror}") from error
        _check_private(address.path)
    check(address.path)


def _check_directory(path: str) -> None:
    directory = os.path.dirname(path)
    try:
        found = os.stat(directory)
    except OSError as error:
        raise _bad(path, f"its directory: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise _bad(path, f"{directory} isn't a directory")
    others_may_write = bool(found.st_mode & 0o022)
    if found.st_uid not in (os.getuid(), 0):
        raise _bad(path, f"its directory belongs to uid {found.st_uid}, this is uid {os.getuid()}")
    if others_may_write and not found.st_mode & stat.S_ISVTX:
        raise _bad(path, f"others may write in {directory} and put a socket of theirs in its place")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise _bad(path, f"{directory} isn't writable by uid {os.getuid()}")


def _check_private(path: str) -> None:
    directory = os.path.dirname(path)
    _check_base(path, os.path.dirname(directory))
    try:
        found = os.lstat(directory)
    except OSError as error:
        raise _bad(path, f"its directory: {error.strerror}") from error
    if stat.S_ISLNK(found.st_mode):
        raise _bad(path, f"{directory} is a symbolic link")
    if not stat.S_ISDIR(found.st_mode):
        raise _bad(path, f"{directory} isn't a directory")
    if found.st_uid != os.getuid():
        raise _bad(path, f"{directory} belongs to uid {found.st_uid}, this is uid {os.getuid()}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise _bad(path, f"{directory} has mode {stat.S_IMODE(found.st_mode):04o}, 0700 is needed")


def _check_base(path: str, base: str) -> None:
    """Who may write in the place of the own directory, which `JUPYTER_SALUS_RUN_DIR` chooses, could put another one there."""
    mode = os.stat(base).st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise _bad(path, f"others may write in {base} and put a directory of theirs in its place")


def _bad(path: str, why: str) -> BadAddress:
    return BadAddress(f"cannot use the socket path {path!r}: {why}", {"path": path})


def _beside(path: str, suffix: str) -> str:
    stem = path[: -len(".sock")] if path.endswith(".sock") else path
    return stem + suffix


def _is_roots_directory(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == 0


def _boot() -> str:
    """Eight characters that differ from boot to boot; where the system tells none (macOS clears /tmp itself), a constant."""
    try:
        return Path(_BOOT_ID).read_text(encoding="ascii").strip().replace("-", "")[:8] or "noboot"
    except OSError:
        return "noboot"
