"""The connection to the backend: a daemon thread of its own that reads, reconnects, and calls the guest's ticks.

Any thread may send: what the socket takes at once goes out in the caller's thread, so that a hand-over waits for no
other thread; the rest is kept for the link's thread. Nothing here blocks a caller. A forked child has neither the
thread nor the socket: `abandon` closes its copies, so that the end of the kernel is the end of the connection.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from typing import Any, Callable, List, Optional

from ..errors import SalusError
from ..protocol.codec import Message, from_wire, to_wire
from ..protocol.framing import MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, FrameReader, encode
from ..protocol.promptness import be_prompt
from ..protocol.turns import Failed, Hello, Welcome

_log = logging.getLogger("jupyter_salus")

#: Pauses between attempts to connect, in seconds: doubled from the first to the last.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 2.0
#: The longest pause after a backend refused the hello, in seconds. The first ones are short: a new backend may not have
#: heard from this kernel's server yet.
LAST_REFUSED_PAUSE_S = 15.0
#: How long a backend may take to answer the hello, in seconds.
HELLO_S = 10.0
#: More unsent bytes than this and the backend counts as gone: it doesn't read.
MAX_UNSENT_BYTES = 1 << 20


class Link:
    """One guest's connection. `up` is True between welcome and hang-up; the callbacks run in the link's thread."""

    def __init__(
        self,
        address: str,
        hello: Callable[[], Hello],
        on_welcome: Callable[[Welcome], None],
        on_message: Callable[[Message], None],
        on_down: Callable[[], None],
        tick: Callable[[float], Optional[float]],
    ) -> None:
        self.up = False
        self.address = address
        #: Why there is no connection, where that is known.
        self.refusal: Optional[str] = None
        #: The backend was given up for its silence, and none has welcomed this guest since.
        self.silent = False
        #: When something came from the backend last, monotonic.
        self.heard = 0.0
        self._hello = hello
        self._on_welcome = on_welcome
        self._on_message = on_message
        self._on_down = on_down
        self._tick = tick
        self._socket: Optional[socket.socket] = None
        self._unsent = bytearray()
        self._sending = threading.RLock()
        self._ended = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._thread = threading.Thread(target=self._run, name="jupyter-salus-link", daemon=True)
        # Both marks keep debuggers from tracing, and from suspending, this thread.
        self._thread.pydev_do_not_trace = True  # type: ignore[attr-defined]
        self._thread.is_pydev_daemon_thread = True  # type: ignore[attr-defined]

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._thread.start()

    def is_own_thread(self) -> bool:
        """Whether the caller is the link's thread."""
        return threading.current_thread() is self._thread

    def wake(self) -> None:
        """Have the link's thread call `tick` soon; from any thread."""
        try:
            os.write(self._wake_write, b"\0")
        except OSError as error:
            # The pipe is full, so a wake-up is pending already, or this is a forked child.
            if error.errno is None:
                raise  # a `TimeoutError` of the user's own signal handler is one as well

    def send(self, *messages: Message) -> bool:
        """Send messages in one go, from any thread; False if there is no connection. Never blocks, never raises."""
        if not self.up:
            return False
        try:
            data = b"".join(encode(to_wire(one), MAX_REQUEST_BYTES) for one in messages)
        except SalusError:
            _log.debug("a message couldn't be sent", exc_info=True)
            return False
        return self._put(data)

    def abandon(self) -> None:
        """Close this process's copies without a word: the forked child's way, and a broken guest's."""
        self._ended = True
        self.up = False
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()
        for descriptor in (self._wake_read, self._wake_write):
            try:
                os.close(descriptor)
            except OSError:
                pass  # closed by the link's own end
        self._wake_read = self._wake_write = -1

    def give_up(self, why: str) -> None:
        """In the link's thread: hang up on a backend that says nothing, and connect anew."""
        self.silent, self.refusal = True, why
        self.up = False

    def stop(self) -> None:
        """End the connection and the thread, from any thread."""
        self._ended = True
        self.up = False
        sock = self._socket
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it had ended already
        self.wake()

    # ---- the link's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        be_prompt()
        pause = FIRST_PAUSE_S
        while not self._ended:
            welcomed = False
            if not self.silent:
                self.refusal = None
            try:
                welcomed = self._serve()
            except Exception:
                _log.debug("the connection to the backend ended", exc_info=True)
            if welcomed or self.up:
                pause = FIRST_PAUSE_S
            self._hang_up()
            if self._is_ended():
                return
            self._rest(pause)
            pause = min(2 * pause, LAST_REFUSED_PAUSE_S if self.refusal and not self.silent else LAST_PAUSE_S)

    def _is_ended(self) -> bool:
        return self._ended

    def _serve(self) -> bool:
        """One connection from its beginning to its end; whether there was a welcome."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = sock
        sock.settimeout(HELLO_S)
        try:
            sock.connect(self.address)
        except OSError:
            return False
        hello = self._hello()
        sock.sendall(encode(to_wire(hello), MAX_REQUEST_BYTES))
        reader = FrameReader(MAX_ANSWER_BYTES)
        first: List[Any] = []
        while not first:
            data = sock.recv(65536)
            if not data:
                return False
            first = reader.feed(data)
        answer = from_wire(first[0])
        if isinstance(answer, Failed):
            self.refusal = answer.message
            _log.debug("the backend refused this kernel: %s", answer.message)
            return False
        if not isinstance(answer, Welcome):
            return False
        sock.setblocking(False)
        with self._sending:
            self._unsent.clear()
            self.silent, self.refusal, self.heard = False, None, time.monotonic()
            self.up = True
        self._on_welcome(answer)
        for wire in first[1:]:
            self._take(wire)
        self._read(sock, reader)
        return True

    def _read(self, sock: socket.socket, reader: FrameReader) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        while self.up and not self._ended:
            delay = self._tick(time.monotonic())
            poll.register(sock, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            for descriptor, _events in poll.poll(None if delay is None else max(1, int(delay * 1000))):
                if descriptor == self._wake_read:
                    self._drain_wakes()
                    continue
                if self._unsent:
                    self._put(b"")
                try:
                    data = sock.recv(65536)
                except (BlockingIOError, InterruptedError):
                    continue
                if not data:
                    return
                self.heard = time.monotonic()
                for wire in reader.feed(data):
                    self._take(wire)

    def _take(self, wire: Any) -> None:
        try:
            message = from_wire(wire)
        except SalusError:
            _log.debug("a message of the backend isn't understood", exc_info=True)
            return
        self._on_message(message)

    def _put(self, data: bytes) -> bool:
        with self._sending:
            sock = self._socket
            if sock is None or not self.up:
                return False
            if self._unsent:
                self._unsent += data
                data = bytes(self._unsent)
                self._unsent.clear()
            try:
                sent = sock.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                if error.errno is None:
                    raise  # of the user's own signal handler
                self.up = False
                self.wake()
                return False
            if sent < len(data):
                self._unsent += data[sent:]
                if len(self._unsent) > MAX_UNSENT_BYTES:
                    self.up = False
                if not self.is_own_thread():
                    self.wake()
            return True

    def _hang_up(self) -> None:
        with self._sending:
            self.up = False
            sock, self._socket = self._socket, None
            self._unsent.clear()
        if sock is not None:
            sock.close()
        self._on_down()

    def _rest(self, pause_s: float) -> None:
        """Pause before the next attempt; wake-ups don't shorten it, the end does."""
        until = time.monotonic() + pause_s
        while not self._ended:
            left = until - time.monotonic()
            if left <= 0:
                return
            if select.select([self._wake_read], [], [], left)[0]:
                self._drain_wakes()

    def _drain_wakes(self) -> None:
        try:
            while os.read(self._wake_read, 512):
                pass
        except OSError:
            pass  # empty: all wake-ups are taken
