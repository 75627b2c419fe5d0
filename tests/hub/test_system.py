"""A system's backend: what the service manager is given, and sockets that it made."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_salus.backend.daemon.unit import ADMIN_SOCKET, SERVICE, SOCKET, TMPFILES
from jupyter_salus.protocol.client import Client
from tests.daemon.speaking import PATIENCE_S, Talker
from tests.hub.accounts import reachable
from tests.hub.conftest import ADA, GRACE, as_user

#: An account without rights that any system has.
NOBODY = 65534
#: Takes the sockets' descriptors as a service manager passes them, and becomes the backend.
ACTIVATED = """
import os, sys
first, second = int(sys.argv[1]), int(sys.argv[2])
os.dup2(first, 3), os.dup2(second, 4)
os.set_inheritable(3, True), os.set_inheritable(4, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="2")
os.execv(sys.executable, [sys.executable, "-m", "jupyter_salus.backend", *sys.argv[3:]])
"""


def printed(*options: str) -> str:
    command = [sys.executable, "-m", "jupyter_salus.backend", "--print-unit", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_unit_its_sockets_and_directories_are_printed_and_written(short_tmp: Path) -> None:
    text = printed("--device=cuda", "--admin-group=gpu")
    for path in (SERVICE, SOCKET, ADMIN_SOCKET, TMPFILES):
        assert f"# ---- /{path}\n" in text
    assert "--device=cuda" in text
    assert "--limits=/etc/jupyter-salus/limits.toml --admin-group=gpu" in text
    listed = printed(f"--unit-root={short_tmp}", "--unit-user=salus").split()
    assert sorted(listed) == sorted(str(short_tmp / path) for path in (SERVICE, SOCKET, ADMIN_SOCKET, TMPFILES))
    assert "User=salus" in (short_tmp / SERVICE).read_text()
    assert "d /run/jupyter-salus/users 0700 salus root -" in (short_tmp / TMPFILES).read_text()
    if shutil.which("systemd-analyze") is not None:
        units = [str(short_tmp / path) for path in (SERVICE, SOCKET, ADMIN_SOCKET)]
        checked = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
        assert not [line for line in checked.stderr.splitlines() if "jupyter-salus" in line], checked.stderr


class Activated:
    """A backend of an account without rights, in a directory of root's, at sockets that somebody else made."""

    def __init__(self, directory: Path) -> None:
        directory.chmod(0o755)
        self.directory = directory
        self.paths = [str(directory / "backend.sock"), str(directory / "backend.adm")]
        self.sockets = []
        for path, mode, owner in zip(self.paths, (0o666, 0o600), (0, NOBODY), strict=True):
            made = socket.socket(socket.AF_UNIX)
            made.bind(path)
            os.chmod(path, mode)
            os.chown(path, owner, -1)
            made.listen()
            self.sockets.append(made)
        for name, mode in (("backend.lck", 0o600), ("users", 0o700), ("state", 0o700)):
            place = directory / name
            if mode == 0o600:
                place.touch()
            else:
                place.mkdir()
            place.chmod(mode)
            os.chown(place, NOBODY, -1)
        self.start()

    def start(self) -> None:
        numbers = [one.fileno() for one in self.sockets]
        command = [*reachable(self.directory), "setpriv", f"--reuid={NOBODY}", "--clear-groups", sys.executable, "-c"]
        command += [ACTIVATED, *map(str, numbers), f"--socket={self.paths[0]}", "--shared", "--device=host"]
        environment = {**os.environ, "JUPYTER_SALUS_STATE_DIR": str(self.directory / "state"), "HOME": "/"}
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, pass_fds=numbers, cwd="/"
            )

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0, (self.directory / "log").read_text()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for one in self.sockets:
            one.close()


@pytest.fixture
def activated(short_tmp: Path) -> Iterator[Activated]:
    made = Activated(short_tmp)
    yield made
    made.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another account")
def test_sockets_of_the_service_manager_are_served_and_stay_while_the_backend_restarts(activated: Activated) -> None:
    """Whoever connects meanwhile waits in the socket's queue; nobody finds a closed door."""
    with as_user(ADA):
        client = Client(activated.paths[0], timeout=PATIENCE_S)
    with client, Client(activated.paths[1], timeout=PATIENCE_S) as admin:
        assert client.ask("about")["powers"].startswith(f"uid {NOBODY}, asks guests and guards only")
        directory = admin.act("user", "anna", '{"socket": true}')["directory"]
    activated.stop()
    assert [stat.S_ISSOCK(os.stat(path).st_mode) for path in activated.paths] == [True, True]
    assert not (Path(directory) / "backend.sock").exists()
    activated.start()
    with as_user(GRACE):
        Client(activated.paths[0], timeout=PATIENCE_S).close()
    with as_user(GRACE), pytest.raises(PermissionError):
        Talker(activated.paths[1])
    Client(f"{directory}/backend.sock", timeout=PATIENCE_S).close()
    activated.stop()
