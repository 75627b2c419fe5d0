"""A blocking connection to the backend, for the command line and for threads of the server."""

from __future__ import annotations

import os
import socket
import threading
import time
from types import TracebackType
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Type

from ..errors import BackendGone, BadAddress, BadFrame, UnknownMessage
from .address import check_length, find
from .codec import PROTOCOL, Message, from_wire, to_wire
from .framing import MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, FrameReader, encode
from .messages import Act, Answer, Ask, Done, Failed, Hello, StateChanged, Subscribe, Welcome
from .refusal import error_of
from .version import VERSION


def gone(path: str, why: str) -> BackendGone:
    """The error of a backend that doesn't answer at `path`, with what to do; shared with the asyncio peer."""
    return BackendGone(f"cannot reach the backend at {path}: {why}; {_advice(path)}", {"address": path})


def _advice(path: str) -> str:
    """A user's own backend comes by itself; another one is somebody's to start."""
    try:
        found = find(os.environ)
    except BadAddress:
        found = None
    if found is not None and found.path == path and found.kind == "own":
        return "a server with jupyter_salus.Manager starts one (`jupyter salus backend` by hand)"
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        return f"its directory {directory} isn't there"
    return f"`jupyter salus backend --socket {path}` starts one"


def known(wires: Iterable[Mapping[str, Any]]) -> Iterator[Message]:
    """The messages of these objects, less those of kinds that only a newer backend knows."""
    for wire in wires:
        try:
            yield from_wire(wire)
        except UnknownMessage:
            continue


class Client:
    """One connection. Requests from several threads go one after the other.

    The constructor connects and says hello: raises `BackendGone` where nobody answers, `BadAddress` for a path no socket
    can have, or the error that the backend refused the hello with.
    """

    def __init__(self, path: str, role: str = "client", timeout: float = 10.0) -> None:
        check_length(path)
        self.path = path
        self._timeout = timeout
        self._lock = threading.Lock()
        self._reader = FrameReader(MAX_ANSWER_BYTES)
        self._read: List[Message] = []
        self._request = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(path)
            hello = Hello(role=role, protocol=PROTOCOL, version=VERSION, pid=os.getpid())
            self._socket.sendall(encode(to_wire(hello), MAX_REQUEST_BYTES))
            self.welcome = self._welcomed(time.monotonic() + timeout)
        except OSError as error:
            self._socket.close()
            raise gone(path, error.strerror or str(error)) from error
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; a second time does nothing."""
        self._socket.close()

    def ask(self, what: str, **args: Any) -> Dict[str, Any]:
        """The body of an answer: `state`, `history`, `journal`, `metrics`."""
        return self.request(Ask, what=what, **args)

    def act(self, verb: str, target: str, value: Optional[str] = None) -> Dict[str, Any]:
        """Have a verb carried out on a session or device. Raises the error of a refusal."""
        return self.request(Act, verb=verb, target=target, value=value)

    def request(self, cls: Callable[..., Message], **fields: Any) -> Dict[str, Any]:
        """Say a message that has a request number, and return the body of its answer.

        Raises the error of a refusal, `BackendGone` if the connection ends or no answer comes within the timeout.
        """
        with self._lock:
            self._request += 1
            number = self._request
            said = cls(request=number, **fields)
            deadline = time.monotonic() + self._timeout
            self._send(said)
            while True:
                heard = self._next(deadline)
                if isinstance(heard, Failed) and heard.request in (number, None):
                    raise error_of(heard)
                if isinstance(heard, (Done, Answer)) and heard.request == number:
                    return heard.body or {}

    def changes(self) -> Iterator[StateChanged]:
        """Subscribe and yield what changes, the whole state first, until the backend ends (`BackendGone`)."""
        self.request(Subscribe)
        while True:
            heard = self._next(None)
            if isinstance(heard, StateChanged):
                yield heard

    def _welcomed(self, deadline: float) -> Welcome:
        heard = self._next(deadline)
        if isinstance(heard, Failed):
            raise error_of(heard)
        if not isinstance(heard, Welcome):
            raise BadFrame(f"cannot begin with the backend at {self.path}: it answered the hello with {heard.kind!r}")
        return heard

    def _send(self, said: Message) -> None:
        try:
            self._socket.settimeout(self._timeout)
            self._socket.sendall(encode(to_wire(said), MAX_REQUEST_BYTES))
        except OSError as error:
            raise gone(self.path, error.strerror or str(error)) from error

    def _next(self, deadline: Optional[float]) -> Message:
        while not self._read:
            if deadline is None:
                self._socket.settimeout(None)
            else:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise gone(self.path, f"no answer within {self._timeout:g} s")
                self._socket.settimeout(left)
            try:
                data = self._socket.recv(65536)
            except socket.timeout:
                continue
            except OSError as error:
                raise gone(self.path, error.strerror or str(error)) from error
            if not data:
                raise gone(self.path, "it ended the connection")
            self._read.extend(known(self._reader.feed(data)))
        return self._read.pop(0)
