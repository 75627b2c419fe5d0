"""This process's connection to one backend, kept up by a thread with an event loop of its own.

A thread, because kernels are started from more than one loop (a server's, nbclient's, one for each notebook), because a busy
server must still pass an interrupt on, and because starting a backend takes longer than a kernel may wait. Whoever wants
something said changes an `Enrolment` and calls `touch`; after a reconnection everything that the backend there hasn't heard
is said again. A backend at the user's own address that is gone is started again, after a random pause so that not all
servers do it at once; at a system or configured address the link waits for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..errors import BackendGone, SalusError
from ..protocol.address import Address
from ..protocol.client import gone
from ..protocol.launch import ensure_backend
from ..protocol.messages import Ask, Interrupt
from ..protocol.peer import Peer
from .enrolment import Enrolment

T = TypeVar("T")

#: What a kernel's start, interrupt or cull waits for the backend at most, in seconds.
PATIENCE_S = 2.0
#: The pause after a lost connection, and after failures in a row up to the last, in seconds; each times 0.5 to 1.5. Where a
#: backend of our own doesn't come up, each attempt is a process; elsewhere it is one call.
PAUSES_S = {"own": (0.1, 0.5, 1.0, 2.0, 5.0, 10.0), "system": (0.1, 0.2, 0.5, 1.0), "configured": (0.1, 0.2, 0.5, 1.0)}


class Link:
    """Made by `link_to`. Its methods may be called from any thread, the coroutines from any loop."""

    def __init__(self, address: Address, log: logging.Logger) -> None:
        self.address = address
        self.log = log
        #: Why there is no connection, in words; None while there is one.
        self.problem: str | None = f"cannot reach the backend at {address.path} yet: the connection is being made"
        self._enrolments: dict[str, Enrolment] = {}
        self._peer: Peer | None = None
        self._closing = False
        self._running: set[asyncio.Task[None]] = set()
        #: Done by the next attempt to connect that fails.
        self._failure: asyncio.Future[Any] | None = None
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._up = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="jupyter-salus-link", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs in this process."""
        return self._thread.is_alive()

    @property
    def connected(self) -> bool:
        """Whether the backend has welcomed this process and the connection stands."""
        return self._peer is not None

    @property
    def backend_pid(self) -> int | None:
        """The pid of the backend as it said it, None without a connection."""
        peer = self._peer
        return peer.welcome.pid if peer is not None and peer.welcome is not None else None

    def touch(self, enrolment: Enrolment) -> concurrent.futures.Future[None]:
        """Have said what changed of this kernel, now or as soon as there is a backend. The future is done when it was.

        Never raises: the hooks of kernels that outlive the link call it, too.
        """
        try:
            return self._submit(self._bring(enrolment))
        except BackendGone as error:
            closed: concurrent.futures.Future[None] = concurrent.futures.Future()
            closed.set_exception(error)
            return closed

    async def bring(self, enrolment: Enrolment, patience_s: float = PATIENCE_S) -> bool:
        """`touch`, and wait for it at most `patience_s` seconds, or until an attempt to connect fails.

        False: the backend hasn't heard it yet, but will once it is there.
        """
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._submit(self._try(enrolment))), patience_s)
        except (TimeoutError, SalusError):
            return False

    def interrupt(self, session: str) -> None:
        """Have the backend end the waits of this session. Without a backend nobody waits for it."""
        self._call(self._interrupt, session)

    async def state(self, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """The state as the backend tells it. Raises `BackendGone` where it doesn't within `patience_s` seconds."""
        asked = self._submit(self._ask())
        try:
            return await asyncio.wait_for(asyncio.wrap_future(asked), patience_s)
        except TimeoutError as error:
            raise gone(self.address.path, self.problem or f"no answer within {patience_s:g} s") from error

    def close(self, timeout: float = 10.0) -> None:
        """End the connection and the thread."""
        self._call(self._end)
        self._thread.join(timeout)

    # ---- in the link's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._keep())
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self._loop.close()

    async def _keep(self) -> None:
        failures = 0
        pauses = PAUSES_S[self.address.kind]
        while not self._closing:
            try:
                peer = await self._connect()
            except (SalusError, OSError) as error:
                self._tell(str(error))
                await self._pause(pauses[min(failures, len(pauses) - 1)])
                failures += 1
                continue
            except Exception:
                self.log.exception("Salus: cannot connect to the backend at %s", self.address.path)
                self._tell(f"cannot connect to the backend at {self.address.path}")
                await self._pause(pauses[-1])
                continue
            failures = 0
            self._peer, self.problem = peer, None
            self._up.set()
            for enrolment in list(self._enrolments.values()):
                self._spawn(self._bring(enrolment))
            await self._until_closed(peer)
            self._peer = None
            self._up.clear()
            await peer.close()
            if not self._closing:
                self._tell(f"cannot reach the backend at {self.address.path}: {peer.closed.result()}")
                await self._pause(pauses[0])

    async def _connect(self) -> Peer:
        """Raises `BackendGone` and what else a hello is refused with."""
        if self.address.kind == "own":
            await _in_thread(lambda: ensure_backend(self.address, self.log))
        return await Peer.connect(self.address.path, role="server")

    async def _until_closed(self, peer: Peer) -> None:
        while not self._closing and not peer.closed.done():
            self._wake.clear()
            waking: asyncio.Future[Any] = asyncio.ensure_future(self._wake.wait())
            ending: asyncio.Future[Any] = peer.closed
            await asyncio.wait({ending, waking}, return_when=asyncio.FIRST_COMPLETED)
            waking.cancel()

    async def _pause(self, seconds: float) -> None:
        """Over early when somebody wants something said."""
        try:
            await asyncio.wait_for(self._wake.wait(), seconds * random.uniform(0.5, 1.5))
        except TimeoutError:
            return
        self._wake.clear()

    async def _bring(self, enrolment: Enrolment) -> None:
        if enrolment.ended and not enrolment.announced:
            self._enrolments.pop(enrolment.session, None)
            return
        self._enrolments[enrolment.session] = enrolment
        while True:
            peer = await self._present()
            try:
                await enrolment.bring(peer, backend=(peer.welcome.pid if peer.welcome else None))
                break
            except BackendGone:
                if not peer.closed.done():
                    raise
            except SalusError as error:
                self.log.warning("Salus: the backend refused kernel %s: %s", enrolment.session, error)
                raise
        if enrolment.ended and self._enrolments.get(enrolment.session) is enrolment:
            del self._enrolments[enrolment.session]

    async def _try(self, enrolment: Enrolment) -> bool:
        bringing = self._spawn(self._bring(enrolment))
        if self._failure is None or self._failure.done():
            self._failure = self._loop.create_future()
        await asyncio.wait({bringing, self._failure}, return_when=asyncio.FIRST_COMPLETED)
        return bringing.done() and not bringing.cancelled() and bringing.exception() is None

    async def _ask(self) -> dict[str, Any]:
        peer = await self._present()
        return await peer.request(Ask, what="state")

    async def _present(self) -> Peer:
        """The connection, once there is one."""
        while True:
            peer = self._peer
            if peer is not None and not peer.closed.done():
                return peer
            self._wake.set()
            self._up.clear()
            if self._closing:
                raise gone(self.address.path, "the connection was closed here")
            await self._up.wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[Any]:
        """Run beside the rest; a refusal was logged where it was raised."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, SalusError):
            self.log.error("Salus: a message to the backend failed", exc_info=error)

    def _interrupt(self, session: str) -> None:
        if self._peer is not None:
            self._peer.say(Interrupt, session=session)

    def _end(self) -> None:
        self._closing = True
        self._wake.set()
        self._up.set()

    def _tell(self, problem: str) -> None:
        """One line when it goes wrong, none while it stays so."""
        if self._failure is not None and not self._failure.done():
            self._failure.set_result(None)
        if self.problem != problem:
            self.problem = problem
            self.log.warning("Salus: %s. Kernels run as plain ones until it is back", problem)

    # ---- from other threads into it ------------------------------------------------------------------------------------

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:
            work.close()
            raise gone(self.address.path, "the connection was closed here") from error

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return  # The loop is closed: the link has ended, and so has what it could say.


async def _in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a daemon thread. Not in asyncio's pool, whose threads a process waits for at its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failed = None, None
        try:
            result = work()
        except BaseException as error:
            failed = error
        try:
            loop.call_soon_threadsafe(finish, result, failed)
        except RuntimeError:
            return  # The link was closed meanwhile.

    threading.Thread(target=run, name="jupyter-salus-launch", daemon=True).start()
    return await done


_links: dict[str, Link] = {}
_links_lock = threading.Lock()


def link_to(address: Address, log: logging.Logger) -> Link:
    """The process's link to this address; it lives as long as the process, or until `close_links`."""
    with _links_lock:
        link = _links.get(address.path)
        if link is None or not link.alive:  # a forked child has the object, and not its thread
            link = _links[address.path] = Link(address, log)
        return link


def close_links() -> None:
    """End all links of this process: for whoever embeds a server and goes on after it."""
    with _links_lock:
        ending = list(_links.values())
        _links.clear()
    for link in ending:
        link.close()
