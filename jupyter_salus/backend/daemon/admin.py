"""Verbs of the admin door alone that are about users: what their hub knows of them, sockets for their containers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from ...errors import BadAddress, NotAllowed, SalusError
from ...protocol.messages import Act
from .connections import Connection
from .listening import Listening
from .shares import Shares


class Admin:
    """`connections` are those that there are."""

    VERBS = ("user", "forget")

    def __init__(
        self, shares: Shares, listening: Listening, connections: Callable[[], Iterable[Connection]], log: logging.Logger
    ) -> None:
        self._shares = shares
        self._listening = listening
        self._connections = connections
        self._log = log
        self._failed: set[str] = set()

    def act(self, connection: Connection, said: Act) -> dict[str, Any]:
        """Do what was asked. `user` answers with what holds for the user, and the `directory` of their socket if they have
        one. Raises `NotAllowed` at other doors, `BadValue`, `BadAddress`."""
        if not connection.admin:
            raise NotAllowed(f"cannot do {said.verb} from here: the backend's admin socket, beside this one, may")
        if said.verb == "forget":
            return {"known": self._forgotten(said.target)}
        member = self._shares.members.tell(said.target, said.value)
        self._shares.apply([said.target])
        directory = self._listening.open_for(said.target) if member.socket else None
        return {"limits": self._shares.of(said.target).told(), "directory": directory}

    def open_doors(self) -> None:
        """Serve the directories of hub users that are there: an earlier backend's, and those that a mount has just made.

        Called once a second. One that can't be served is logged once."""
        for name in self._listening.appeared():
            if name in self._failed:
                continue
            try:
                self._listening.open_for(name)
            except SalusError as error:
                self._failed.add(name)
                self._log.warning("Hub user %s has no socket: %s", name, error)

    def _forgotten(self, name: str) -> bool:
        """The hub removed this user: no connection by their socket, no groups or limits of theirs, and no socket."""
        for connection in list(self._connections()):
            if connection.door.hub_user == name:
                connection.drop("its user was removed")
        known = self._shares.members.forget(name)
        try:
            self._listening.close_for(name, for_ever=True)
        except BadAddress as error:
            # A container that could write there left something: the user is gone all the same.
            self._log.warning("Hub user %s is forgotten, and something of theirs stays: %s", name, error)
            self._failed.add(name)
        return known
