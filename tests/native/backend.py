"""A backend of few words: it speaks the guard's wire and decides nothing. Tests say what it answers."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0


class Guard:
    """One connection of a guard: what it said, and what is said to it."""

    def __init__(self, connection: socket.socket, easy: bool) -> None:
        self.connection = connection
        self.easy = easy  # welcomes, opens the gate whenever it is asked to, has no room
        self.heard: list[dict[str, Any]] = []
        self.changed = threading.Condition()
        self.closed = False
        self.epoch = 0
        threading.Thread(target=self._read, daemon=True).start()

    def say(self, kind: str, **fields: Any) -> None:
        self.raw(json.dumps({"kind": kind, **fields}).encode())

    def raw(self, body: bytes, length: int | None = None) -> None:
        try:
            self.connection.sendall(struct.pack(">I", len(body) if length is None else length) + body)
        except OSError:
            pass  # the guard hung up: what a test expects of that it looks for

    def wait(self, kind: str, after: int = 0, **fields: Any) -> dict[str, Any]:
        """The first message of that kind with these fields, from the `after`-th message on."""

        def find() -> dict[str, Any] | None:
            for message in self.heard[after:]:
                if message.get("kind") == kind and all(message.get(k) == v for k, v in fields.items()):
                    return message
            return None

        with self.changed:
            if not self.changed.wait_for(lambda: find() is not None, PATIENCE_S):
                raise TimeoutError(f"no {kind} {fields} from the guard; heard {self.heard}")
            found = find()
        assert found is not None
        return found

    def count(self, kind: str) -> int:
        with self.changed:
            return sum(message.get("kind") == kind for message in self.heard)

    def wait_closed(self) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.closed, PATIENCE_S), "the guard keeps the connection"

    # What backends do, in the order in which they do it.
    def welcome(self) -> dict[str, Any]:
        hello = self.wait("hello")
        self.say("welcome", protocol=1, version="test", pid=1)
        return hello

    def open(self, **fields: Any) -> int:
        self.epoch += 1
        self.say("open_gate", epoch=self.epoch, **fields)
        return self.epoch

    def close_gate(self, drain_s: float = 30.0) -> int:
        self.epoch += 1
        self.say("close_gate", epoch=self.epoch, drain_s=drain_s)
        return self.epoch

    def drain(self) -> int:
        """Takes the turn back for good: no gate is opened by itself after it."""
        self.easy = False
        epoch = self.close_gate()
        self.wait("turn_drained", epoch=epoch)
        return epoch

    def evict(self, move: int) -> dict[str, Any]:
        self.say("evict_blocks", move=move)
        return self.wait("blocks_out", move=move)

    def restore(self, move: int) -> dict[str, Any]:
        self.say("restore_blocks", move=move)
        return self.wait("blocks_back", move=move)

    def hang_up(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        held = b""
        while True:
            try:
                data = self.connection.recv(65536)
            except OSError:
                data = b""
            held += data
            with self.changed:
                while len(held) >= 4 and len(held) >= 4 + (length := struct.unpack(">I", held[:4])[0]):
                    self.heard.append(json.loads(held[4 : 4 + length]))
                    held = held[4 + length :]
                    self._be_easy(self.heard[-1]["kind"])
                self.closed = not data
                self.changed.notify_all()
            if not data:
                return

    def _be_easy(self, kind: str) -> None:
        if self.easy and kind == "hello":
            self.say("welcome", protocol=1, version="test", pid=1)
        elif self.easy and kind == "touched":
            self.open()
        elif self.easy and kind == "room_wanted":
            self.say("room_refused", ticket=self.heard[-1]["ticket"], message="no room in this test")


class Backend:
    """Listens at an address and keeps the guards that came, in their order."""

    def __init__(self, address: Path, easy: bool) -> None:
        self.address = address
        self.easy = easy
        self.guards: list[Guard] = []
        self.changed = threading.Condition()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(address))
        self.listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def guard(self, number: int = 0) -> Guard:
        """The `number`-th guard that came; waits for it."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.guards) > number, PATIENCE_S), "no guard came"
            return self.guards[number]

    def stop(self) -> None:
        """As when a backend dies: the address answers no longer, all connections end."""
        if self.listener.fileno() < 0:
            return
        self.address.unlink(missing_ok=True)
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for guard in self.guards:
            try:
                guard.hang_up()
            except OSError:
                pass  # it had hung up already
            guard.connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with self.changed:
                self.guards.append(Guard(connection, self.easy))
                self.changed.notify_all()


def until(condition: Any, what: str) -> None:
    """Waits for something that nobody announces."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)
