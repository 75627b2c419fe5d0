"""A shared backend, and peers that come as other users."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_salus.protocol.client import Client
from tests.daemon.nursery import Nursery
from tests.daemon.speaking import GUEST, PATIENCE_S, Daemon, GuestProcess, Hearing, Talker, Wire
from tests.native.conftest import built
from tests.native.world import World

__all__ = ["built"]

ADA, GRACE = 23456, 23457
#: Mount and pid namespaces of one's own.
CONTAINER = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
LIMITS = """
[default]
max_sessions = 3
[groups.course]
weight = 0.5
max_priority = "normal"
persistent_bytes = "2GiB"
[groups.staff]
weight = 2
max_priority = "high"
persistent_bytes = "unlimited"
[users.ada]
max_sessions = 2
"""


@contextmanager
def as_user(uid: int) -> Iterator[None]:
    """What connects inside does so as this user."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


class Contained(GuestProcess):
    """A guest in what a container is: mount and pid namespaces of its own, one directory of the host's mounted at `/mnt`,
    and any uid."""

    def __init__(self, directory: Path, uid: int, hello: Wire) -> None:
        Hearing.__init__(self)
        inside = f"import json, os, socket, struct, sys, threading, time\nos.setresuid({uid}, {uid}, {uid})\n{GUEST}"
        begin = 'mount --bind "$1" /mnt && exec "$2" -c "$3" "$4"'
        said = json.dumps({"path": "/mnt/backend.sock"})
        self.process = subprocess.Popen(
            [*CONTAINER, "sh", "-c", begin, "sh", str(directory), sys.executable, inside, said],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._read = b""
        self.children = self.hear("children")["pids"]
        self.say({"kind": "hello", "protocol": [1, 1], "version": "test", "role": "guest", **hello})


class Shared(Daemon):
    """A backend for all users, in a directory that stands for the system's."""

    def __init__(self, *options: str, environ: dict[str, str] | None = None) -> None:
        directory = Path(tempfile.mkdtemp(prefix="js", dir="/tmp"))
        directory.chmod(0o755)
        self.limits = directory / "limits.toml"
        self.limits.write_text(LIMITS)
        limits = f"--limits={self.limits}"
        device = options or ("--device=host", "--capacity=4GiB")
        super().__init__(directory, "--shared", limits, *device, environ=environ)

    def client_of(self, uid: int, role: str = "server") -> Client:
        with as_user(uid):
            return Client(self.path, role=role, timeout=PATIENCE_S)

    def user(self, name: str, said: str) -> dict:
        """What a spawn hook says of a hub user, at the admin door."""
        with self.client(admin=True) as admin:
            return admin.act("user", name, said)

    def door_of(self, name: str) -> str:
        """The socket of a hub user, made if it isn't there."""
        return str(Path(self.user(name, '{"socket": true}')["directory"]) / "backend.sock")

    def at(self, path: str, hello: dict) -> Talker:
        talker = Talker(path, hello)
        self.peers.append(talker)
        return talker

    def contained(self, door: str, uid: int, **hello: Any) -> Contained:
        made = Contained(Path(door).parent, uid, hello)
        self.peers.append(made)
        return made

    def close(self) -> None:
        try:
            super().close()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture(scope="package", autouse=True)
def nursery(isolated_run: Path) -> Iterator[Nursery]:
    """Where this folder's backends are born, apart from those of a system."""
    made = Nursery.current = Nursery()
    yield made
    Nursery.current = None
    made.close()


@pytest.fixture
def shared() -> Iterator[Shared]:
    started = Shared()
    yield started
    started.close()


@pytest.fixture
def world(built: Path, short_tmp: Path) -> Iterator[World]:
    """A stand-in GPU of 256 MiB."""
    made = World(built, short_tmp, real=False)
    yield made
    made.stop()


@pytest.fixture
def shared_gpu(world: World) -> Iterator[Shared]:
    """A backend for all users that governs a GPU, and warns of what uses it without a session."""
    mine = {name: value for name, value in world.environment.items() if name.startswith(("SALUS_", "LD_LIBRARY_PATH"))}
    options = ("--device=cuda", "--reserve=8MiB", "--BackendApp.unmanaged_use=alert")
    started = Shared(*options, environ=mine)
    yield started
    started.close()
