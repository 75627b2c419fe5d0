"""What a system's service manager needs for a backend that serves all local users: service, sockets, directories.

The sockets are the service manager's, so they are there before the backend is, and while it restarts: a kernel that starts
then waits for it. The directory is made by tmpfiles and outlives the service, since the directories below it are mounted
into containers.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SERVICE = "etc/systemd/system/jupyter-salus.service"
SOCKET = "etc/systemd/system/jupyter-salus.socket"
ADMIN_SOCKET = "etc/systemd/system/jupyter-salus-admin.socket"
TMPFILES = "etc/tmpfiles.d/jupyter-salus.conf"
LIMITS = "/etc/jupyter-salus/limits.toml"

_SERVICE = """\
[Unit]
Description=jupyter_salus: notebooks take turns on one GPU
Requires=jupyter-salus.socket jupyter-salus-admin.socket
After=jupyter-salus.socket jupyter-salus-admin.socket

[Service]
ExecStart={command}
User={user}
Sockets=jupyter-salus.socket jupyter-salus-admin.socket
StateDirectory=jupyter-salus
StateDirectoryMode=0700
Environment=JUPYTER_SALUS_STATE_DIR=/var/lib/jupyter-salus
Restart=on-failure
RestartSec=1
LimitNOFILE=65536
# Guests and guards go on while it restarts; nothing of theirs is in its group.
KillMode=process
# It looks at the memory and at the end of all users' kernels: /proc and /tmp must be the host's.
PrivateTmp=no
ProtectProc=default
ProtectSystem=full
ReadWritePaths=/run/jupyter-salus
NoNewPrivileges=yes

[Install]
WantedBy=multi-user.target
"""

_SOCKET = """\
[Unit]
Description=jupyter_salus: where the kernels of local users find the backend

[Socket]
ListenStream=/run/jupyter-salus/backend.sock
SocketMode=0666
Service=jupyter-salus.service

[Install]
WantedBy=sockets.target
"""

_ADMIN_SOCKET = """\
[Unit]
Description=jupyter_salus: where admins find the backend

[Socket]
ListenStream=/run/jupyter-salus/backend.adm
SocketMode={mode}
SocketUser={user}
SocketGroup={group}
Service=jupyter-salus.service

[Install]
WantedBy=sockets.target
"""

_TMPFILES = """\
# Made at boot, before the backend's sockets. The lock and the sockets of hub users are the backend's.
d /run/jupyter-salus 0755 root root -
f /run/jupyter-salus/backend.lck 0600 {user} root -
d /run/jupyter-salus/users 0700 {user} root -
"""


def units(options: Sequence[str], user: str = "root", admin_group: str = "") -> Mapping[str, str]:
    """The files' texts by their paths below `/`. `options`: those of the backend's command line; `user`: who it runs as;
    `admin_group`: whose members may use the admin socket, nobody but `user` where it is empty."""
    command = [sys.executable, "-m", "jupyter_salus.backend", *options]
    return {
        SERVICE: _SERVICE.format(command=shlex.join(command), user=user),
        SOCKET: _SOCKET,
        ADMIN_SOCKET: _ADMIN_SOCKET.format(
            mode="0660" if admin_group else "0600", user=user, group=admin_group or "root"
        ),
        TMPFILES: _TMPFILES.format(user=user),
    }


def printed(files: Mapping[str, str]) -> str:
    """All files one after the other, each under its path."""
    return "\n".join(f"# ---- /{path}\n{text}" for path, text in files.items())


def write(files: Mapping[str, str], root: Path) -> list[Path]:
    """Write the files below `root` (`/` for this machine), with their directories. Raises `OSError`."""
    written = []
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")
        written.append(place)
    return written
