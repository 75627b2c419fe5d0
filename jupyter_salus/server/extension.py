"""The extension as jupyter_server loads it: a feed, its addresses, its event, its gauges."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from jupyter_server.extension.application import ExtensionApp

from ..errors import BadAddress
from ..manager.mapping import WAITING, SalusManagerMixin
from ..manager.names import Notebook, of_sessions
from ..protocol.address import Address, find
from . import events, metrics
from .feed import Feed
from .routes import handlers


class SalusExtension(ExtensionApp):
    """REST under `salus/api`, the event `https://schema.jupyter-salus.org/state/v1`, gauges named `salus_…`."""

    name = "jupyter_salus"
    load_other_extensions = True

    feed: Feed

    def initialize_settings(self) -> None:
        """Make the feed. It connects once the server's loop runs."""
        events.register(self._server.event_logger)
        self.feed = Feed(
            self._address(),
            here=self._here,
            notebooks=self._notebooks,
            tell=self._tell,
            moved=self._moved,
            log=self.log,
        )
        self.settings["salus_feed"] = self.feed
        metrics.follow(self.feed)
        if isinstance(self._server.kernel_manager, SalusManagerMixin):
            self._server.kernel_manager.salus_waits = self._waits

    def initialize_handlers(self) -> None:
        """Add the table's addresses."""
        self.handlers.extend(handlers())

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        """Called in the server's loop; a server that doesn't call it subscribes with the first request."""
        self.feed.start()

    async def stop_extension(self) -> None:
        """End the subscription. Kernels are shut down after this, by their own way to the backend."""
        await self.feed.stop()

    @property
    def _server(self) -> Any:
        assert self.serverapp is not None
        return self.serverapp

    def _address(self) -> Address | None:
        """The address that the Manager uses; under another manager, the one that it would use."""
        manager = self._server.kernel_manager
        if isinstance(manager, SalusManagerMixin):
            return None if manager.salus_link is None else manager.salus_link.address
        if sys.platform == "win32":
            return None
        try:
            return find(os.environ)
        except BadAddress as error:
            self.log.warning("Salus: %s", error)
            return None

    def _here(self, kernel_id: str) -> bool:
        return kernel_id in self._server.kernel_manager

    def _waits(self) -> bool:
        rows = self.feed.held.sessions() if self.feed.connected else ()
        return any(row["here"] and row.get("state") in WAITING for row in rows)

    async def _notebooks(self) -> Mapping[str, Notebook]:
        manager = self._server.kernel_manager
        if isinstance(manager, SalusManagerMixin):
            return await manager.salus_describe()
        return await of_sessions(self._server.session_manager)

    def _tell(self, data: dict[str, Any]) -> None:
        try:
            events.emit(self._server.event_logger, data)
        except Exception:
            self.log.exception("Salus: cannot tell the event of revision %s", data.get("revision"))

    def _moved(self, session: str, before: str | None, after: str | None) -> None:
        """A cell that waited and got its turn is a person's work: cullers, of kernels and of servers, are to see it."""
        manager = self._server.kernel_manager
        if before in WAITING and after not in WAITING and isinstance(manager, SalusManagerMixin):
            manager.salus_active(session)
