"""The backends that the service page shows, one for each host: reached by their admin sockets, asked at most once a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import BackendGone, SalusError
from ..protocol.codec import Message
from ..protocol.messages import Act, Ask
from ..protocol.peer import Peer

#: Seconds for which what a host told is shown to everybody who looks.
FRESH_S = 1.0
PATIENCE_S = 5.0

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """What one host told; `problem` says why there is nothing."""

    name: str
    problem: str | None = None
    about: Row = field(default_factory=dict)
    state: Row = field(default_factory=dict)
    users: list[Row] = field(default_factory=list)


class Host:
    """One backend. `path`: its admin socket."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self._peer: Peer | None = None
        self._told = Told(name)
        self._at = float("-inf")
        self._asking = asyncio.Lock()

    async def told(self) -> Told:
        """What it tells now, or told within the last second. A host that is gone is no error: it says so."""
        async with self._asking:
            if time.monotonic() - self._at >= FRESH_S:
                self._told = await self._ask()
                self._at = time.monotonic()
        return self._told

    async def act(self, verb: str, target: str, value: str | None) -> Row:
        """Have a verb carried out. Raises `BackendGone` or the error of a refusal."""
        done = await self._request(Act, verb=verb, target=target, value=value)
        self._at = float("-inf")
        return done

    async def close(self) -> None:
        """End the connection."""
        peer, self._peer = self._peer, None
        if peer is not None:
            await peer.close()

    async def _ask(self) -> Told:
        try:
            state = await self._request(Ask, what="state")
            users = await self._request(Ask, what="users")
            about = await self._request(Ask, what="about")
        except SalusError as error:
            return Told(self.name, str(error))
        return Told(self.name, None, about, state, users["users"])

    async def _request(self, cls: type[Message], **fields: Any) -> Row:
        if self._peer is None or self._peer.closed.done():
            await self.close()
            self._peer = await Peer.connect(self.path, role="client", timeout=PATIENCE_S)
        return await self._peer.request(cls, **fields)


class Hosts:
    """All hosts, by name."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._hosts = {name: Host(name, path) for name, path in paths.items()}

    def __getitem__(self, name: str) -> Host:
        """Raises `BackendGone` for a name that isn't known."""
        host = self._hosts.get(name)
        if host is None:
            raise BackendGone(f"cannot find a host {name[:80]!r}: there is {', '.join(self._hosts)}")
        return host

    async def told(self) -> list[Told]:
        """What all of them tell, in their order."""
        return list(await asyncio.gather(*(host.told() for host in self._hosts.values())))

    async def forget(self, users: set[str]) -> None:
        """Have each backend forget those users whom it knows from the hub and who aren't among `users` any more."""
        for told in await self.told():
            for row in told.users:
                if row["known"] and row["hub_user"] not in users:
                    await self[told.name].act("forget", row["name"], None)

    async def close(self) -> None:
        """End all connections."""
        await asyncio.gather(*(host.close() for host in self._hosts.values()))
