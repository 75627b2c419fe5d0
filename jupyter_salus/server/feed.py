"""One subscription to the backend for the whole server, however many tabs: it keeps the state, and tells of changes.

Changes are taken over and told at once after a quiet time, else at most every `SPACING_S`, merged. So what a GET answers
and what the events have told are of the same revision.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..errors import BackendGone, SalusError
from ..manager.names import Notebook
from ..protocol.address import Address
from ..protocol.client import gone
from ..protocol.codec import Message
from ..protocol.messages import Act, Ask, StateChanged
from ..protocol.peer import Peer
from .held import HeldState, Row, merged

#: Between two events at least, in seconds: four a second.
SPACING_S = 0.25
#: What a request waits for the first state at most, in seconds: the backend may be starting.
PATIENCE_S = 2.0
#: Between two looks at the names while changes arrive, in seconds; who asks for the state gets those of that moment.
NAMING_S = 1.0
#: While sessions alternate, which makes no revision, totals that are asked for are no older than this, in seconds; an answer
#: that takes longer than `COUNT_S` isn't waited for.
TOTALS_S = 0.5
COUNT_S = 1.0
#: Pauses between attempts to connect, in seconds; the last one repeats. Each times 0.5 to 1.5.
PAUSES_S = (0.1, 0.2, 0.5, 1.0)


class Feed:
    """Belongs to the loop that calls `start`.

    `tell(data)` is called with each event, `moved(session, kernel_id, before, after)` with each session whose state
    changed, `notebooks()` for the names of this server's notebooks. None of them may raise.
    """

    def __init__(
        self,
        address: Address | None,
        here: Callable[[str], bool],
        notebooks: Callable[[], Awaitable[Mapping[str, Notebook]]],
        tell: Callable[[Row], None],
        moved: Callable[[str, str | None, str | None], None],
        log: logging.Logger,
    ) -> None:
        self.address = address
        self.held = HeldState(here, self._rules)
        self.log = log
        self._notebooks = notebooks
        self._tell = tell
        self._moved = moved
        self._peer: Peer | None = None
        self._problem: SalusError | None = None
        self._first = asyncio.Event()
        self._known = False
        self._task: asyncio.Task[None] | None = None
        self._pending: StateChanged | None = None
        self._told_at = float("-inf")
        self._telling: asyncio.TimerHandle | None = None
        self._counted_at = float("-inf")
        self._naming: asyncio.Task[None] | None = None
        self._named_at = float("-inf")

    def start(self) -> None:
        """Subscribe, and stay subscribed; a second time does nothing."""
        if self._task is None and self.address is not None:
            self._task = asyncio.ensure_future(self._keep(self.address))
            self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End the subscription. The kernels' own connections go on."""
        for task in (self._task, self._naming):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._task = self._naming = None
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None

    @property
    def connected(self) -> bool:
        """Whether the state is that of a backend which is there."""
        return self._peer is not None and self._first.is_set()

    async def state(self) -> HeldState:
        """The state with the names of this moment. Raises `BackendGone` where no backend is there.

        A backend that was there and is gone is told at once; only its first start is waited for.
        """
        self.start()
        if not self._first.is_set():
            if self._known or self._task is None:
                raise self._gone()
            try:
                await asyncio.wait_for(self._first.wait(), PATIENCE_S)
            except TimeoutError as error:
                raise self._gone() from error
        await self._count()
        await self._name()
        return self.held

    async def request(self, cls: type[Message], **fields: Any) -> dict[str, Any]:
        """Say a message to the backend. Raises `BackendGone` or the error of a refusal."""
        await self.state()
        peer = self._peer
        if peer is None:
            raise self._gone()
        return await peer.request(cls, **fields)

    async def act(self, verb: str, target: str, value: str | None = None) -> None:
        """Have a verb carried out on a session."""
        await self.request(Act, verb=verb, target=target, value=value)

    async def act_as_admin(self, verb: str, target: str, value: str | None = None) -> None:
        """Have an admin verb carried out, where this server's user can reach the admin socket. Raises `BackendGone`."""
        await self.state()
        if self.address is None:
            raise self._gone()
        peer = await Peer.connect(self.address.admin_path, role="client")
        try:
            await peer.request(Act, verb=verb, target=target, value=value)
        finally:
            await peer.close()

    async def history(self, since: int) -> dict[str, Any]:
        """What happened after revision `since`."""
        return await self.request(Ask, what="history", since=since)

    async def fresh(self) -> Row:
        """The state as the backend tells it now, which the events may not have told yet."""
        state = await self.request(Ask, what="state")
        return {
            **state,
            "devices": self.held.offered(state.get("devices", ())),
            "sessions": [self.held.dressed(row) for row in state.get("sessions", ())],
        }

    def _rules(self) -> bool:
        """Whether this server's user reaches the backend's admin socket."""
        return self.address is not None and os.access(self.address.admin_path, os.W_OK)

    # ---- the subscription ----------------------------------------------------------------------------------------------

    async def _keep(self, address: Address) -> None:
        failures = 0
        while True:
            try:
                peer = await Peer.connect(address.path, role="server")
            except SalusError as error:
                self._problem = error
                await asyncio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)] * random.uniform(0.5, 1.5))
                failures += 1
                continue
            failures = 0
            try:
                await peer.subscribe(self._hear)
                self._peer = peer
                # Shielded: `stop` cancels the wait, and the peer needs this future for its own end.
                self._problem = gone(address.path, await asyncio.shield(peer.closed))
            except SalusError as error:
                self._problem = error
                failures = len(PAUSES_S)
            finally:
                self._peer = None
                await peer.close()
            self._lost()
            await asyncio.sleep(PAUSES_S[0] * random.uniform(0.5, 1.5))

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Only a fault of ours ends it by itself; the next request subscribes again."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.log.error("Salus: the subscription to the backend failed", exc_info=error)
            self._lost()
            self._task = None

    def _hear(self, change: StateChanged) -> None:
        self._pending = merged(self._pending, change)
        wait = self._told_at + SPACING_S - time.monotonic()
        if wait <= 0:
            self._take()
        elif self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(wait, self._take)

    def _take(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        change, self._pending = self._pending, None
        if change is None:
            return
        self._told_at = time.monotonic()
        moved = self.held.apply(change)
        self._first.set()
        self._known = True
        self._tell(self.held.event(change))
        for session, (before, after) in moved.items():
            self._moved(session, before, after)
        if time.monotonic() - self._named_at >= NAMING_S and (self._naming is None or self._naming.done()):
            self._naming = asyncio.ensure_future(self._name())

    def _lost(self) -> None:
        """Tell once that the backend is gone: its figures are no longer true."""
        self._pending = None
        if not self._first.is_set():
            return
        self._first.clear()
        self.held.backend = {**self.held.backend, "healthy": False}
        self._tell(
            {
                "revision": self.held.revision,
                "previous_revision": self.held.revision,
                "as_of": time.time(),
                "backend": self.held.backend,
                "sessions": [],
                "removed_sessions": [],
            }
        )

    async def _count(self) -> None:
        now = time.monotonic()
        if self._peer is None or not self.held.counts() or now - max(self._counted_at, self._told_at) < TOTALS_S:
            return
        self._counted_at = now
        try:
            self.held.count(await asyncio.wait_for(self._peer.request(Ask, what="state"), COUNT_S))
        except TimeoutError:
            self.held.unanswered()
        except SalusError as error:
            self.log.debug("Salus: the backend's totals can't be asked for: %s", error)

    async def _name(self) -> None:
        """A changed name is no event here: a rename is told to the backend, whose next revision brings it."""
        self._named_at = time.monotonic()
        try:
            self.held.name(await self._notebooks())
        except Exception:
            self.log.exception("Salus: cannot read the names of the notebooks")

    def _gone(self) -> SalusError:
        if self.address is None:
            return BackendGone("cannot reach a backend: Salus is turned off here, or its socket path can't be used")
        return self._problem or gone(self.address.path, f"no answer within {PATIENCE_S:g} s")
