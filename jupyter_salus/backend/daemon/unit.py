"""The systemd unit of a backend that serves all local users."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

_UNIT = """\
[Unit]
Description=jupyter_salus: notebooks take turns on one GPU
After=network.target

[Service]
ExecStart={command}
RuntimeDirectory=jupyter-salus
RuntimeDirectoryMode=0755
StateDirectory=jupyter-salus
Environment=JUPYTER_SALUS_STATE_DIR=/var/lib/jupyter-salus
Restart=on-failure
RestartSec=1
# Guests and guards go on while it restarts; nothing of theirs is in its group.
KillMode=process

[Install]
WantedBy=multi-user.target
"""


def unit(options: Sequence[str]) -> str:
    """The unit's text; `options` are those of the backend's command line."""
    command = [sys.executable, "-m", "jupyter_salus.backend", *options]
    return _UNIT.format(command=shlex.join(command))
