"""The one subscription: it ends when told, notices a backend's end at once, and comes back with its successor."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jupyter_salus.errors import BackendGone
from jupyter_salus.manager.names import Notebook
from jupyter_salus.protocol.address import find
from jupyter_salus.server.feed import SPACING_S, TOTALS_S, Feed
from tests.daemon.speaking import Talker
from tests.manager.running import PATIENCE_S, Backend


class Heard:
    """What a feed told."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._more = asyncio.Event()

    def tell(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        self._more.set()

    async def until(self, wanted: Any) -> dict[str, Any]:
        """The first event that `wanted` is true of."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self._more.clear()
                for event in self.events:
                    if wanted(event):
                        return event
                await self._more.wait()


@pytest.fixture
async def heard() -> Heard:
    return Heard()


@pytest.fixture
async def feed(short_tmp: Path, heard: Heard) -> AsyncIterator[Feed]:
    async def notebooks() -> Mapping[str, Notebook]:
        return {}

    made = Feed(
        find({}, str(short_tmp / "b.sock")),
        here=lambda _: False,
        notebooks=notebooks,
        tell=heard.tell,
        moved=lambda *_: None,
        log=logging.getLogger("jupyter_salus.tests"),
    )
    yield made
    await asyncio.wait_for(made.stop(), PATIENCE_S)


@pytest.fixture
def mortal(short_tmp: Path) -> Any:
    """A backend of the test's own at the feed's address."""
    made = Backend(short_tmp)
    yield made
    made.stop()


async def test_it_ends_while_the_backend_lives(mortal: Backend, feed: Feed):
    assert (await feed.state()).revision > 0
    await asyncio.wait_for(feed.stop(), PATIENCE_S)
    assert not feed.connected


async def test_it_ends_without_a_backend(feed: Feed):
    with pytest.raises(BackendGone):
        await feed.state()
    await asyncio.wait_for(feed.stop(), PATIENCE_S)


async def test_the_end_of_a_backend_is_told_and_its_successor_is_whole(mortal: Backend, feed: Feed, heard: Heard):
    feed.start()
    first = await heard.until(lambda event: event["previous_revision"] == 0)
    mortal.kill()
    gone = await heard.until(lambda event: event.get("backend", {}).get("healthy") is False)
    assert gone["revision"] == gone["previous_revision"] and gone["sessions"] == []
    with pytest.raises(BackendGone):
        await feed.state()
    heard.events.clear()
    await asyncio.to_thread(mortal.restart)
    again = await heard.until(lambda event: event["previous_revision"] == 0)
    assert again["backend"]["pid"] != first["backend"]["pid"] and again["backend"]["healthy"]
    assert (await feed.state()).backend["pid"] == again["backend"]["pid"]


async def test_events_are_at_most_four_a_second(mortal: Backend, feed: Feed, heard: Heard):
    await feed.state()
    device = feed.held.devices[0]["id"]
    heard.events.clear()
    loop = asyncio.get_running_loop()
    began = loop.time()
    for policy in ("fifo", "fair") * 4:
        await feed.act_as_admin("policy", device, policy)
    last = await feed.fresh()
    await heard.until(lambda event: event["revision"] >= last["revision"])
    # Each is told at least the spacing after the one before, so more of them take longer, however slow the machine is.
    assert len(heard.events) <= 1 + (loop.time() - began) / (0.99 * SPACING_S)


async def test_a_feed_without_an_address_says_that_there_is_no_backend(heard: Heard):
    async def notebooks() -> Mapping[str, Notebook]:
        return {}

    feed = Feed(None, lambda _: False, notebooks, heard.tell, lambda *_: None, logging.getLogger("jupyter_salus.tests"))
    with pytest.raises(BackendGone, match="turned off"):
        await feed.state()
    await feed.stop()


async def test_totals_that_are_asked_for_grow_without_a_revision(mortal: Backend, feed: Feed):
    guest = await asyncio.to_thread(Talker, mortal.socket, {"role": "guest", "session": "s1"})
    guest.say({"kind": "turn_wanted", "ticket": 1})
    await asyncio.to_thread(guest.hear, "turn_granted")
    async with asyncio.timeout(PATIENCE_S):
        seen: list[tuple[int, float]] = []
        # Nothing changes but the time that the session had the device.
        while not any(a[0] == b[0] and a[1] < b[1] for a, b in pairwise(seen)):
            held = await feed.state()
            row = held.session("s1")
            seen.append((held.revision, row["used_s"] if row is not None else 0.0))
            await asyncio.sleep(TOTALS_S)
    guest.close()


async def test_a_backend_that_hangs_is_not_healthy_until_it_answers(mortal: Backend, feed: Feed):
    guest = await asyncio.to_thread(Talker, mortal.socket, {"role": "guest", "session": "s1"})
    guest.say({"kind": "turn_wanted", "ticket": 1})
    await asyncio.to_thread(guest.hear, "turn_granted")

    async def until(healthy: bool) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                held = await feed.state()
                if held.session("s1") is not None and held.backend["healthy"] is healthy:
                    return
                await asyncio.sleep(TOTALS_S)

    await until(True)
    before = feed.held.etag
    mortal.process.send_signal(signal.SIGSTOP)
    try:
        await until(False)
        assert feed.held.etag != before
    finally:
        mortal.process.send_signal(signal.SIGCONT)
    await until(True)
    guest.close()
