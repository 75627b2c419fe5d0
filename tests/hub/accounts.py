"""Real Unix users, and a Python that they can run: made by a test as root, and gone with it."""

from __future__ import annotations

import os
import pwd
import shlex
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 60.0


class Accounts:
    """Unix users with names that nobody has, homes below `directory`."""

    def __init__(self, directory: Path, *kinds: str) -> None:
        self.homes = directory / "home"
        self.homes.mkdir(mode=0o755)
        mark = uuid.uuid4().hex[:6]
        self.names: dict[str, str] = {}
        for kind in kinds:
            name = f"js{kind}{mark}"
            home = self.homes / name
            subprocess.run(["useradd", "--create-home", "--home-dir", home, "--shell", "/bin/sh", name], check=True)
            self.names[kind] = name

    def __getitem__(self, kind: str) -> str:
        return self.names[kind]

    def uid(self, kind: str) -> int:
        return pwd.getpwnam(self.names[kind]).pw_uid

    def remove(self, kind: str) -> None:
        """Remove a user whose processes have ended."""
        subprocess.run(["userdel", self.names.pop(kind)], check=True)

    def close(self) -> None:
        """End what the users left running, and remove them."""
        for kind in list(self.names):
            uid = self.uid(kind)
            deadline = time.monotonic() + PATIENCE_S
            while pids := list(processes_of(uid)):
                for pid in pids:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue  # it ended by itself
                assert time.monotonic() < deadline, f"processes {pids} of {self.names[kind]} stay"
                time.sleep(0.05)
            self.remove(kind)


def processes_of(uid: int) -> Iterator[int]:
    """The pids of a user's processes, zombies left out."""
    for entry in Path("/proc").iterdir():
        try:
            its = entry.name.isdigit() and entry.stat().st_uid == uid
            if its and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                yield int(entry.name)
        except OSError:
            continue  # it has just ended


def reachable(directory: Path) -> list[str]:
    """A command's beginning by which it and its children see the interpreter, this package and its environment under
    their own paths, whoever they run as: where a folder above them is closed to others, a private mount opens it."""
    needed = [Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), ROOT]
    closed: dict[Path, list[Path]] = {}
    for path in needed:
        for above in reversed(path.parents):
            if not stat.S_IMODE(above.stat().st_mode) & 0o001:
                closed.setdefault(above, []).append(path)
                break
    if not closed:
        return []
    steps = ["set -e"]
    for number, (above, paths) in enumerate(closed.items()):
        places = [(path, directory / f"open{number}-{index}") for index, path in enumerate(paths)]
        for path, place in places:
            steps.append(
                f"mkdir -p {shlex.quote(str(place))}; mount --bind {shlex.quote(str(path))} {shlex.quote(str(place))}"
            )
        steps.append(f"mount -t tmpfs -o mode=0755 none {shlex.quote(str(above))}")
        for path, place in places:
            steps.append(
                f"mkdir -p {shlex.quote(str(path))}; mount --bind {shlex.quote(str(place))} {shlex.quote(str(path))}"
            )
    return ["unshare", "--mount", "sh", "-c", "\n".join([*steps, 'exec "$@"']), "sh"]
