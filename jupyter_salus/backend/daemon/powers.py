"""What this process may do to processes of others: asked of the kernel, never taken from the uid."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_CAP_SYS_PTRACE = 19
_CAP_KILL = 5
#: The inode of the first pid namespace, fixed in the kernel's sources.
_FIRST_PID_NAMESPACE = 0xEFFFFFFC


@dataclass(frozen=True, slots=True)
class Powers:
    """`others`: may lock, checkpoint and look into any user's process, not only those of its own uid. `host_pids`: it is in
    the host's first pid namespace, so that it sees every process; None where the system doesn't tell."""

    uid: int
    others: bool
    host_pids: bool | None

    @property
    def text(self) -> str:
        """For the log and for `doctor`."""
        if self.others:
            can = "may lock and checkpoint any user's process"
        else:
            can = "asks guests and guards only: it has no rights over other users' processes"
        where = "" if self.host_pids is not False else "; it is in a pid namespace of its own (a pod needs hostPID)"
        return f"uid {self.uid}, {can}{where}"


def powers() -> Powers:
    """Of this process, now."""
    try:
        lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
        held = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    except OSError:
        held = 0
    needed = 1 << _CAP_SYS_PTRACE | 1 << _CAP_KILL
    return Powers(os.geteuid(), held & needed == needed, _host_pids())


def _host_pids() -> bool | None:
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return None
