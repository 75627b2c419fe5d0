"""One connection to the backend: frames in, frames out, with bounds on all that a peer may make us hold.

A bad frame ends the connection. A message that can't be understood or done is answered with `failed`, and the
connection goes on. Who sends too fast is read more slowly; who doesn't read what we say is dropped; so is who doesn't
say hello.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...errors import BadFrame, BadMessage, NotAllowed, SalusError
from ...protocol.codec import Message, from_wire, to_wire
from ...protocol.framing import FrameReader, encode
from ...protocol.messages import Hello
from ...protocol.refusal import refusal
from .peers import Credentials, credentials
from .plain import plain
from .users import NOBODY, Door

HELLO_S = 10.0
#: Frames a second that a peer may send for long, and how many at once.
RATE = 2000.0
BURST = 4000.0
#: Bytes that may wait for a peer to read them. A guest is told little; a state of 10,000 sessions is some megabytes.
UNREAD_GUEST_BYTES = 256 * 1024
UNREAD_BYTES = 32 * 1024 * 1024
#: What the kernel may hold for a peer beyond that; small, so that a peer that doesn't read is found.
_SEND_BUFFER_BYTES = 256 * 1024


class Hearer(Protocol):
    """Who gets what a connection hears."""

    def admit(self, connection: Connection) -> None:
        """A peer connected. Raises what it is refused with; its connection ends then."""

    def refused(self, code: str) -> None:
        """A peer was answered with an error of this code."""

    def welcome(self, connection: Connection, hello: Hello) -> None:
        """The peer's first message. Raises what the peer is refused with; its connection ends then."""

    def hear(self, connection: Connection, said: Message) -> None:
        """A message after the hello. Raises what the peer is answered with."""

    def gone(self, connection: Connection) -> None:
        """The connection is over. Said once, also for one that never said hello."""


#: What all connections read into, one after the other: what is read is taken apart at once.
_READ = memoryview(bytearray(256 * 1024))


class Connection(asyncio.BufferedProtocol):
    """One peer. `door`: the socket that it came by, which says with its credentials whose it is."""

    def __init__(self, hearer: Hearer, door: Door, now: Callable[[], float], log: logging.Logger) -> None:
        self.door = door
        self.admin = door.admin
        self.credentials = Credentials(-1, 0)
        self.owner = NOBODY
        self.hello: Hello | None = None
        self.subscribed = False
        self._hearer = hearer
        self._now = now
        self._log = log
        self._frames = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._allowance = BURST
        self._counted_at = now()

    @property
    def role(self) -> str:
        return self.hello.role if self.hello is not None else "nobody"

    @property
    def socket(self) -> socket.socket:
        """The socket itself, for what the kernel knows of the peer."""
        assert self._transport is not None
        found: socket.socket = self._transport.get_extra_info("socket")
        return found

    @property
    def open(self) -> bool:
        """Whether the peer is there still."""
        return self._transport is not None and not self._transport.is_closing()

    def __str__(self) -> str:
        hub = f", hub user {self.door.hub_user}" if self.door.hub_user is not None else ""
        return f"{self.role} (pid {self.credentials.pid}, uid {self.credentials.uid}{hub})"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the peer connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.credentials = credentials(self.socket)
        self.owner = self.door.owner(self.credentials)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._patience = asyncio.get_running_loop().call_later(HELLO_S, self.drop, f"no hello within {HELLO_S:g} s")
        try:
            self._hearer.admit(self)
        except SalusError as error:
            self._refuse(error, None)

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio: the connection is over, whoever ended it."""
        self._calm()
        self._transport = None
        if self._frames.held_bytes:
            self._log.info("The connection of %s ended within a frame", self)
        self._hearer.gone(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """asyncio: where to put what comes next. Without this it would allocate that much for each message."""
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio: so many bytes came."""
        try:
            for wire in self._frames.feed(bytes(_READ[:nbytes])):
                if self._transport is None or self._transport.is_closing():
                    return
                self._allowance -= 1
                self._take(wire)
        except BadFrame as error:
            self._refuse(error, None)
            self.drop(error.message)
        self._slow_down()

    def say(self, said: Message) -> None:
        """Send a message; nothing happens once the connection is over. A peer that doesn't read is dropped."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(encode(to_wire(said)))
        limit = UNREAD_GUEST_BYTES if self.role in ("guest", "guard") else UNREAD_BYTES
        if self._transport.get_write_buffer_size() > limit:
            self.drop(f"it left {self._transport.get_write_buffer_size()} bytes unread, the limit is {limit}", now=True)

    def drop(self, why: str, now: bool = False) -> None:
        """End the connection, after what was said to the peer went out (`now`: without that)."""
        if self._transport is not None and not self._transport.is_closing():
            self._log.info("The connection of %s ends: %s", self, plain(why))
            self.end(now)

    def end(self, now: bool = False) -> None:
        """End the connection without a word in the log."""
        self._calm()
        if self._transport is None:
            return
        if now:
            self._transport.abort()
        else:
            self._transport.close()

    def _calm(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _take(self, wire: Mapping[str, Any]) -> None:
        request = wire.get("request")
        number = request if type(request) is int else None
        try:
            said = from_wire(wire)
            if self.hello is None:
                self._greet(said)
            elif isinstance(said, Hello):
                raise BadMessage("cannot take a second hello: the connection has one already")
            else:
                self._hearer.hear(self, said)
        except SalusError as error:
            self._refuse(error, number)
        except Exception as error:
            self._log.exception("A message of kind %r from %s met a fault of ours", wire.get("kind"), self)
            self._refuse(
                SalusError(f"cannot do what {wire.get('kind')!r} asks: a fault of the backend ({error!r})"), number
            )

    def _greet(self, said: Message) -> None:
        if not isinstance(said, Hello):
            raise BadMessage(f"cannot take a {said.kind} before the hello")
        self.hello = said
        try:
            self._hearer.welcome(self, said)
        except BaseException:
            self.hello = None
            raise
        self._calm()

    def _refuse(self, error: SalusError, number: int | None) -> None:
        self._hearer.refused(error.code)
        if isinstance(error, NotAllowed):
            self._log.warning("Refused %s of %s: %s", self, self.owner.name, plain(str(error)))
        self.say(refusal(error, number))
        if self.hello is None:
            self.drop(error.message)

    def _slow_down(self) -> None:
        """Stop reading until the peer's allowance is above zero again, if it used it up."""
        now = self._now()
        self._allowance = min(BURST, self._allowance + (now - self._counted_at) * RATE)
        self._counted_at = now
        if self._allowance < 0 and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(-self._allowance / RATE, self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
