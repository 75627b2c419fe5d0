"""One kernel as its backend should know it: what is to be said of it, and what has been.

The kernel's manager writes what is true (token, pid, name); `bring` says what this backend hasn't heard yet. So it makes no
difference whether the backend was there when the kernel started, came later, or is another one since.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import UnknownSession
from ..protocol.codec import Message
from ..protocol.messages import Announce, Describe, Ended, Launched
from .names import Notebook


class Speaks(Protocol):
    """The part of a `Peer` that is used here."""

    def request(self, cls: type[Message], **fields: Any) -> Awaitable[dict[str, Any]]:
        """Say a message and wait for its answer."""
        ...


@dataclass
class _Said:
    """What one backend has heard; another one has heard nothing."""

    backend: object = None
    incarnation: int = 0
    launched: tuple[int | None, str | None, str | None] | None = None
    notebook: Notebook | None = None
    ended: bool = False


@dataclass
class Enrolment:
    """A kernel's session with the backend; `session` is the kernel's id and stays over restarts."""

    session: str
    notebook: Notebook
    priority: str | None = None
    token: str = ""
    incarnation: int = 0
    pid: int | None = None
    unmanaged: str | None = None
    unguarded: str | None = None
    ended: bool = False
    #: Where the backend put it, as it answered the announcement: `device`, `uuid`, and `among` how many; empty: not said.
    device: dict[str, Any] = field(default_factory=dict)
    _said: _Said = field(default_factory=_Said)
    _speaking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def begin(self) -> None:
        """A process is about to be launched: a fresh token and incarnation, nothing known of the process yet."""
        self.token = secrets.token_urlsafe(24)
        self.incarnation += 1
        self.pid = None
        self.unmanaged = self.unguarded = None
        self.ended = False

    @property
    def announced(self) -> bool:
        """Whether a backend has heard of the kernel, in whatever incarnation."""
        return self._said.incarnation > 0

    async def bring(self, peer: Speaks, backend: object) -> None:
        """Say what `backend` hasn't heard, in the order in which it happened. Raises the error of a refusal."""
        async with self._speaking:
            if self._said.backend != backend:
                self._said = _Said(backend)
            try:
                await self._say(peer)
            except UnknownSession:
                # The backend dropped the session meanwhile: begin again, once.
                self._said = _Said(backend)
                await self._say(peer)

    async def _say(self, peer: Speaks) -> None:
        said = self._said
        if self.ended:
            if said.incarnation and not said.ended:
                said.ended = True
                await peer.request(Ended, session=self.session)
            return
        if said.incarnation != self.incarnation:
            incarnation, notebook = self.incarnation, self.notebook
            self.device = await peer.request(
                Announce,
                session=self.session,
                token=self.token,
                incarnation=incarnation,
                kernel_id=self.session,
                name=notebook.name,
                path=notebook.path,
                priority=self.priority,
            )
            said.incarnation, said.notebook, said.launched, said.ended = incarnation, notebook, None, False
        launched = (self.pid, self.unmanaged, self.unguarded)
        if launched not in ((None, None, None), said.launched):
            pid, unmanaged, unguarded = launched
            await peer.request(Launched, session=self.session, pid=pid, unmanaged=unmanaged, unguarded=unguarded)
            said.launched = launched
        notebook = self.notebook
        if said.notebook != notebook:
            await peer.request(Describe, session=self.session, name=notebook.name, path=notebook.path or "")
            said.notebook = notebook
