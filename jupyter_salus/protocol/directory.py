"""The state directory: logs, journal and profiles of a user's backend."""

from __future__ import annotations

import os
from typing import Mapping


def state_directory(environ: Mapping[str, str]) -> str:
    """`JUPYTER_SALUS_STATE_DIR`, else `jupyter-salus` in `XDG_STATE_HOME` or `~/.local/state`. It may not exist yet."""
    chosen = environ.get("JUPYTER_SALUS_STATE_DIR")
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    base = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "jupyter-salus")
