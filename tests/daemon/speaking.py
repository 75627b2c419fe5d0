"""A real backend in a process of its own, and scripted peers that speak the wire to it."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_salus.protocol.address import Address
from jupyter_salus.protocol.client import Client
from jupyter_salus.protocol.framing import MAX_ANSWER_BYTES, FrameReader, encode
from tests.daemon.nursery import Born, Nursery

#: How long anything may take before a test fails, in seconds: the machine may be loaded.
PATIENCE_S = 60.0
Wire = dict[str, Any]

#: A guest's process: says the frames that come on stdin, writes those that it hears to stdout. `forks`: how many
#: children are forked that hold a copy of the connection and `bytes` of memory, and sleep.
GUEST = """
import json, os, socket, struct, sys, threading, time
arguments = json.loads(sys.argv[1])
held = bytearray(os.urandom(1)) * arguments.get("bytes", 0)
connection = socket.socket(socket.AF_UNIX)
connection.connect(arguments["path"])
children = []
for _ in range(arguments.get("forks", 0)):
    child = os.fork()
    if not child:
        mine = bytearray(os.urandom(1)) * arguments.get("child_bytes", 0)
        os.close(0)
        time.sleep(120)
        os._exit(0)
    children.append(child)
def say(said):
    body = json.dumps(said).encode()
    connection.sendall(struct.pack(">I", len(body)) + body)
def exactly(count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            return None
        data += more
    return data
def hear():
    while True:
        head = exactly(4)
        if head is None:
            break
        print(exactly(struct.unpack(">I", head)[0]).decode(), flush=True)
    print(json.dumps({"kind": "hung_up"}), flush=True)
print(json.dumps({"kind": "children", "pids": children}), flush=True)
threading.Thread(target=hear, daemon=True).start()
for line in sys.stdin:
    said = json.loads(line)
    if said == "grow":
        held += bytearray(os.urandom(1)) * (256 << 20)
        print(json.dumps({"kind": "grown"}), flush=True)
    elif said == "close":
        connection.shutdown(socket.SHUT_RDWR)
    else:
        say(said)
"""


class Hearing(ABC):
    """What both kinds of scripted peers have: frames heard so far, and waiting for one."""

    def __init__(self) -> None:
        self.heard: list[Wire] = []
        self._taken = 0

    @abstractmethod
    def _more(self, timeout: float) -> bool:
        """Wait for further frames, `timeout` seconds at most; False if none came."""

    def hear(self, kind: str, **fields: Any) -> Wire:
        """The next frame of this kind with these fields that wasn't taken yet; those before it are skipped."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            while self._taken < len(self.heard):
                wire = self.heard[self._taken]
                self._taken += 1
                if wire.get("kind") == kind and all(wire.get(name) == value for name, value in fields.items()):
                    return wire
            left = deadline - time.monotonic()
            assert left > 0 and self._more(left), f"no {kind} came, but {self.heard[-5:]}"

    def seen(self, kind: str) -> Wire:
        """The first frame of this kind at all, whether or not it was taken: for those whose order isn't given."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for wire in self.heard:
                if wire.get("kind") == kind:
                    return wire
            left = deadline - time.monotonic()
            assert left > 0 and self._more(left), f"no {kind} came, but {self.heard[-5:]}"


class Talker(Hearing):
    """A peer in the test's own process. `hello` is said if it is given."""

    def __init__(self, path: str, hello: Wire | None = None) -> None:
        super().__init__()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise
        self._frames = FrameReader(MAX_ANSWER_BYTES)
        self.ended = False
        if hello is not None:
            self.say({"kind": "hello", "protocol": [1, 1], "version": "test", **hello})

    def say(self, *said: Wire) -> None:
        self.raw(b"".join(encode(one) for one in said))

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _more(self, timeout: float) -> bool:
        if self.ended:
            return False
        self.socket.settimeout(timeout)
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self.ended = True
            return False
        self.heard += self._frames.feed(data)
        return True

    def hang_up(self) -> bool:
        """Read until the backend hangs up; False if it doesn't."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.ended and time.monotonic() < deadline:
            try:
                self._more(deadline - time.monotonic())
            except TimeoutError:
                return False
        return self.ended

    def close(self) -> None:
        self.socket.close()


class GuestProcess(Hearing):
    """A guest in a process of its own, which can be killed, stopped, and can fork."""

    def __init__(self, path: str, hello: Wire | None, **arguments: Any) -> None:
        super().__init__()
        self.process = subprocess.Popen(
            [sys.executable, "-c", GUEST, json.dumps({"path": path, **arguments})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._read = b""
        self.children: list[int] = self.hear("children")["pids"]
        if hello is not None:
            self.say({"kind": "hello", "protocol": [1, 1], "version": "test", "role": "guest", **hello})

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, said: Wire | str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(said).encode() + b"\n")
        self.process.stdin.flush()

    def _more(self, timeout: float) -> bool:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        data = os.read(self.process.stdout.fileno(), 65536) if ready else b""
        self._read += data
        *lines, self._read = self._read.split(b"\n")
        self.heard += [json.loads(line) for line in lines]
        return bool(data)

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # it was killed before it read all
        self.process.kill()
        self.process.wait()
        for child in self.children:
            try:
                os.kill(child, 9)
            except ProcessLookupError:
                pass  # it ended by itself


class Daemon:
    """A backend's process at a socket of its own. `options` are those of its command line; `config` are constants of its
    scheduler that aren't as usual, where a nursery is."""

    process: subprocess.Popen[bytes] | Born

    def __init__(
        self,
        directory: Path,
        *options: str,
        environ: dict[str, str] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        self.directory = directory
        self.config = config or {}
        self.path = str(directory / "b.sock")
        self.state_directory = directory / "state"
        self.options = options
        self.environ = {
            **os.environ,
            "JUPYTER_SALUS_STATE_DIR": str(self.state_directory),
            "JUPYTER_SALUS_DEBUG": "1",
            **(environ or {}),
        }
        self.peers: list[Talker | GuestProcess] = []
        self.start()

    @property
    def admin_path(self) -> str:
        return Address(self.path, "configured").admin_path

    def command(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "jupyter_salus.backend", f"--socket={self.path}", *(options or self.options)]

    def start(self) -> None:
        """Start, and wait until it serves."""
        reader, writer = os.pipe()
        nursery = Nursery.current
        with open(self.directory / "log", "ab") as log:
            if nursery is not None:
                self.process = nursery.born(self.command()[3:], self.environ, self.config, log.fileno(), writer)
            else:
                assert not self.config, "a backend that is started alone has the usual constants"
                self.process = subprocess.Popen(
                    [*self.command(), f"--ready-fd={writer}"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.environ,
                    pass_fds=(writer,),
                )
        os.close(writer)
        with os.fdopen(reader, "rb") as ready:
            assert ready.readline() == b"ready\n", self.log()

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def client(self, role: str = "client", admin: bool = False) -> Client:
        return Client(self.admin_path if admin else self.path, role=role, timeout=PATIENCE_S)

    def state(self) -> Wire:
        with self.client() as client:
            return client.ask("state")

    def words(self) -> list[str]:
        """The journal."""
        with self.client() as client:
            return [entry["text"] for entry in client.ask("journal")["entries"]]

    def session(self, id: str) -> Wire | None:
        return next((row for row in self.state()["sessions"] if row["id"] == id), None)

    def until(self, id: str, holds: Callable[[Wire | None], object]) -> Wire | None:
        """The row of a session once it is as wanted."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            row = self.session(id)
            if holds(row):
                return row
            assert time.monotonic() < deadline, f"session {id} stays {row}"
            time.sleep(0.02)

    def talker(self, hello: Wire | None = None, admin: bool = False) -> Talker:
        self.peers.append(Talker(self.admin_path if admin else self.path, hello))
        return self.peers[-1]  # type: ignore[return-value]

    def guest(self, session: str, **hello: Any) -> Talker:
        """A guest in the test's process, welcomed."""
        talker = self.talker({"role": "guest", "session": session, **hello})
        talker.hear("welcome")
        return talker

    def guest_process(self, session: str, hello: Wire | None = None, **arguments: Any) -> GuestProcess:
        """A guest in a process of its own, welcomed."""
        made = GuestProcess(self.path, {"session": session, **(hello or {})}, **arguments)
        self.peers.append(made)
        made.hear("welcome")
        return made

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        self.process.terminate()
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        if self.process.poll() is None:
            assert self.stop() == 0, self.log()
        assert "Traceback" not in self.log(), self.log()
