"""Directories of hub users' sockets: one for each user, named so that no two users share one and no name leads elsewhere.

A hub's spawner mounts such a directory into its user's containers; the backend serves a socket in each that is there.
"""

from __future__ import annotations

import os
import re
import string

from ..errors import BadValue

#: Beside the user socket.
USERS_DIRECTORY = "users"
#: Where a user's directory is mounted in a container: a backend's address there, as on a host.
MOUNTED_AT = "/run/jupyter-salus"
_PLAIN = frozenset(string.ascii_letters + string.digits + "-")
_NAME = re.compile(r"(?:[A-Za-z0-9-]|_[0-9a-f]{2})+")


def directory_of(socket: str, user: str) -> str:
    """The directory for this hub user, of the backend whose user socket is `socket`. Raises `BadValue`."""
    if not 0 < len(user) <= 255:
        raise BadValue(f"cannot make a socket for a user whose name has {len(user)} characters: 1 to 255 are needed")
    # Whatever isn't plain stands as its bytes.
    plain = "".join(one if one in _PLAIN else "".join(f"_{byte:02x}" for byte in one.encode()) for one in user)
    return os.path.join(os.path.dirname(socket), USERS_DIRECTORY, plain)


def user_of(directory: str) -> str:
    """The hub user whose directory is called so. Raises `BadValue` for a name that `directory_of` gives nobody."""
    try:
        if _NAME.fullmatch(directory):
            parts = re.sub(r"_([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), directory)
            user = parts.encode("latin-1").decode("utf-8")
            if os.path.basename(directory_of("", user)) == directory:
                return user
    except (UnicodeError, BadValue):
        pass  # told below, with all other names
    raise BadValue(f"cannot tell whose the directory {directory[:80]!r} is: no user's is called so")
