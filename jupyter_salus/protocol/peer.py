"""An asyncio connection to the backend, for the server extension: requests, and one subscription to the state."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Callable, Dict, Optional

from ..errors import BackendGone, BadFrame, SalusError
from .address import check_length
from .client import gone, known
from .codec import PROTOCOL, Message, to_wire
from .framing import MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, FrameReader, encode
from .messages import Answer, Done, Failed, Hello, StateChanged, Subscribe, Welcome
from .refusal import error_of
from .version import VERSION


class Peer:
    """One connection, made by `connect`. Ends by `close`, or by the backend's end: `closed` then has its result."""

    def __init__(self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float) -> None:
        self.path = path
        self.welcome: Optional[Welcome] = None
        #: Done when the connection is over; its result says why.
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._timeout = timeout
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader(MAX_ANSWER_BYTES)
        self._waiting: Dict[int, asyncio.Future[Dict[str, Any]]] = {}
        self._welcomed: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._callback: Optional[Callable[[StateChanged], None]] = None
        self._request = 0
        self._task = asyncio.ensure_future(self._read())

    @classmethod
    async def connect(cls, path: str, role: str = "server", timeout: float = 10.0, **fields: Any) -> Peer:
        """Connect and say hello; `fields` are further ones of the hello.

        Raises `BackendGone` where nobody answers within `timeout` seconds, `BadAddress`, or the refusal of the hello.
        """
        check_length(path)
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(path), timeout)
        except asyncio.TimeoutError as error:
            raise gone(path, f"no connection within {timeout:g} s") from error
        except OSError as error:
            raise gone(path, error.strerror or str(error)) from error
        peer = cls(path, reader, writer, timeout)
        try:
            peer._send(Hello(role=role, protocol=PROTOCOL, version=VERSION, pid=os.getpid(), **fields))
            peer.welcome = await asyncio.wait_for(asyncio.shield(peer._welcomed), timeout)
        except asyncio.TimeoutError as error:
            await peer.close()
            raise gone(path, f"no answer within {timeout:g} s") from error
        except BaseException:
            await peer.close()
            raise
        return peer

    async def request(self, cls: Callable[..., Message], **fields: Any) -> Dict[str, Any]:
        """Say a message that has a request number, and return the body of its answer.

        Raises the error of a refusal, `BackendGone` if the connection ends or no answer comes within the timeout.
        """
        if self.closed.done():
            raise gone(self.path, self.closed.result())
        self._request += 1
        number = self._request
        answer: asyncio.Future[Dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._send(cls(request=number, **fields))
            return await asyncio.wait_for(answer, self._timeout)
        except asyncio.TimeoutError as error:
            raise gone(self.path, f"no answer within {self._timeout:g} s") from error
        finally:
            self._waiting.pop(number, None)

    def say(self, cls: Callable[..., Message], **fields: Any) -> None:
        """Say a message that has no answer (`interrupt`). After the connection's end it does nothing."""
        if not self.closed.done():
            self._send(cls(**fields))

    async def subscribe(self, callback: Callable[[StateChanged], None]) -> None:
        """Have `callback` called with each change of the state, the first one whole. It must not raise or block."""
        self._callback = callback
        await self.request(Subscribe)

    async def close(self) -> None:
        """End the connection and wait until its task has ended; a second time does nothing."""
        self._finish("it was closed here")
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        try:
            await self._writer.wait_closed()
        except OSError:
            # The other end was gone already; the descriptor is closed all the same.
            return

    def _send(self, said: Message) -> None:
        self._writer.write(encode(to_wire(said), MAX_REQUEST_BYTES))

    async def _read(self) -> None:
        why = "it ended the connection"
        try:
            while data := await self._reader.read(65536):
                for heard in known(self._frames.feed(data)):
                    self._hear(heard)
        except OSError as error:
            why = error.strerror or str(error)
        except SalusError as error:
            why = error.message
        finally:
            self._finish(why)

    def _finish(self, why: str) -> None:
        if self.closed.done():
            return
        self.closed.set_result(why)
        self._writer.close()
        error: BackendGone = gone(self.path, why)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)
        if not self._welcomed.done():
            self._welcomed.set_exception(error)
            self._welcomed.exception()  # Read once, so that asyncio doesn't log it where nobody waits for it any more.

    def _hear(self, heard: Message) -> None:
        if isinstance(heard, StateChanged):
            if self._callback is not None:
                self._callback(heard)
        elif isinstance(heard, (Done, Answer)):
            answer = self._waiting.get(heard.request)
            if answer is not None and not answer.done():
                answer.set_result(heard.body or {})
        elif isinstance(heard, Welcome):
            if not self._welcomed.done():
                self._welcomed.set_result(heard)
        elif isinstance(heard, Failed):
            self._refused(heard)
        else:
            raise BadFrame(f"cannot use a message of kind {heard.kind!r} from the backend at {self.path}")

    def _refused(self, failed: Failed) -> None:
        answer = self._waiting.get(failed.request) if failed.request is not None else None
        if answer is not None and not answer.done():
            answer.set_exception(error_of(failed))
        elif not self._welcomed.done():
            self._welcomed.set_exception(error_of(failed))
