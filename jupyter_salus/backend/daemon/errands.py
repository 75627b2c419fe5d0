"""Work that takes a while beside the loop, begun by an event and awaited by nobody: kept until it is done, or the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from ...errors import SalusError


class Errands:
    """`what` begins the line in the log about one that failed: "A return can't be ordered", say."""

    def __init__(self, what: str, log: logging.Logger) -> None:
        self._what = what
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Have it done. A `SalusError` of it is logged; any other is a fault of ours, which asyncio reports."""
        task = asyncio.ensure_future(self._done(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Give up what is under way."""
        for task in self._tasks:
            task.cancel()

    async def _done(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except SalusError as error:
            self._log.warning("%s: %s", self._what, error)
