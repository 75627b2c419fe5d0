"""A backend that does what a test tells it: speaks the wire with the guests of real kernels and remembers what they said."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from jupyter_salus.protocol.codec import Message, from_wire, to_wire
from jupyter_salus.protocol.framing import FrameReader, encode
from jupyter_salus.protocol.messages import (
    Failed,
    Hello,
    Interrupt,
    Ping,
    Pong,
    Progress,
    TurnGranted,
    TurnReleased,
    TurnRevoked,
    TurnWanted,
    WaitExplained,
    Welcome,
)

#: How long a test waits for anything, in seconds: the machine may be loaded.
PATIENCE_S = float(os.environ.get("JUPYTER_SALUS_TEST_PATIENCE_S", "60"))
M = TypeVar("M", bound=Message)


class ScriptedBackend:
    """Takes every hello. `generous`: grants each turn that is wanted at once; else a test grants by hand."""

    def __init__(self, path: Path, generous: bool = True, memory_mode: str = "host") -> None:
        self.path = path
        self.memory_mode = memory_mode
        self.generous = generous
        self.refuse: str | None = None
        #: Answers nothing, as if the process had been stopped.
        self.mute = False
        self.said: list[Message] = []
        self.epochs = itertools.count(100)
        self.epoch: int | None = None
        self._heard = threading.Condition()
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.start()

    # ---- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen; again after `stop`, as a new backend at the same address."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(8)
        self._thread(self._accept, self._listener)

    def stop(self) -> None:
        """Gone at once, as if killed: connections and listener close."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for one in self._connections:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._threads.clear()
        self._connections.clear()
        self.epoch = None

    def _thread(self, run: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._thread(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader()
        with connection:
            while True:
                try:
                    data = connection.recv(65536)
                except OSError:
                    data = b""
                if not data:
                    return
                for wire in reader.feed(data):
                    self._take(connection, from_wire(wire))

    def _take(self, connection: socket.socket, message: Message) -> None:
        with self._heard:
            self.said.append(message)
            if self.mute:
                pass
            elif isinstance(message, Ping):
                connection.sendall(encode(to_wire(Pong())))
            elif isinstance(message, Hello):
                answer: Message = Welcome(
                    protocol=1, version="0", pid=os.getpid(), key="k", memory_mode=self.memory_mode
                )
                if self.refuse is not None:
                    answer = Failed(code="not_allowed", message=self.refuse)
                connection.sendall(encode(to_wire(answer)))
            elif isinstance(message, TurnWanted) and self.generous:
                self._grant(message.ticket)
            elif isinstance(message, TurnReleased):
                if message.epoch == self.epoch:
                    self.epoch = None
                if message.wants_more and self.generous and message.ticket is not None:
                    self._grant(message.ticket)
            self._heard.notify_all()

    # ---- what a test does --------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """To every connected guest."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.sendall(encode(to_wire(message)))

    def _grant(self, ticket: int) -> int:
        self.epoch = next(self.epochs)
        self.send(TurnGranted(epoch=self.epoch, ticket=ticket))
        return self.epoch

    def grant(self, ticket: int) -> int:
        """Give a turn; returns its epoch."""
        with self._heard:
            return self._grant(ticket)

    def revoke(self, epoch: int | None = None, deadline_s: float = 3600.0) -> int:
        """Ask for the turn back; returns its epoch."""
        with self._heard:
            epoch = self.epoch if epoch is None else epoch
        assert epoch is not None
        self.send(TurnRevoked(epoch=epoch, deadline=time.time() + deadline_s))
        return epoch

    def explain(self, ticket: int, text: str, **more: Any) -> None:
        """Say why the guest waits."""
        self.send(WaitExplained(ticket=ticket, code="turn", text=text, **more))

    def interrupt(self) -> None:
        """The server interrupts the kernel."""
        self.send(Interrupt())

    # ---- what a test sees --------------------------------------------------------------------------------------------

    def all(self, kind: type[M]) -> list[M]:
        """Every message of this class so far."""
        with self._heard:
            return [one for one in self.said if isinstance(one, kind)]

    def expect(self, kind: type[M], number: int = 1) -> M:
        """The `number`-th message of this class, waited for."""
        deadline = time.monotonic() + PATIENCE_S
        with self._heard:
            while True:
                found = [one for one in self.said if isinstance(one, kind)]
                if len(found) >= number:
                    return found[number - 1]
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"no {kind.kind} number {number} in {PATIENCE_S} s; heard {self.kinds()}")
                self._heard.wait(left)

    def released(self, epoch: int) -> TurnReleased:
        """The release of this epoch, waited for."""
        number = 1
        while True:
            message = self.expect(TurnReleased, number)
            if message.epoch == epoch:
                return message
            number += 1

    def iterations(self) -> int:
        """All iterations that were told of."""
        return sum(one.iterations for one in self.all(Progress)) + sum(
            one.iterations or 0 for one in self.all(TurnReleased)
        )

    def kinds(self) -> list[str]:
        """The kinds of what was said, progress and pings left out: they come at their own pace."""
        with self._heard:
            return [one.kind for one in self.said if not isinstance(one, (Progress, Ping))]

    def forget(self) -> None:
        """Begin a new record."""
        with self._heard:
            self.said.clear()
