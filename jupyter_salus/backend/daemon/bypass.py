"""What the driver lists beside what guards and guests report: processes that use a device without a session.

A terminal's `python`, a kernel of another manager, a child that dropped the preload. They are listed with user and bytes,
and with `alert` told in the log once each; nothing here ends a process, since the driver's list is no proof of whose fault
something is. Their memory counts as foreign use all the while.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..devices import processes
from ..devices.size import bytes_text
from .connections import Connection
from .lineage import belongs, title
from .peers import user_name
from .records import Records
from .users import Owner

#: Less than this is what any process has by opening the driver, a monitor for instance.
WORTH_BYTES = 16 * 1024 * 1024
#: Looks in a row in which a process must be listed: a session's process is listed before its guard has said hello.
LOOKS = 3


@dataclass(slots=True)
class Unmanaged:
    """One process. `owner`: whose it is as its server, its session or its uid says; `session`: below whose kernel it runs."""

    pid: int
    owner: Owner
    command: str
    session: str | None
    bytes: dict[str, int]
    since: float
    looks: int = 0

    def row(self, device: str) -> dict[str, Any]:
        """As people get it."""
        return {
            "user": self.owner.name,
            "pid": self.pid,
            "command": self.command,
            "session": self.session,
            "device": device,
            "bytes": self.bytes[device],
            "since": self.since,
        }


class Bypass:
    """`connections` are those that there are: processes below a hub user's server are that user's, whatever their uid."""

    def __init__(
        self,
        records: Records,
        connections: Callable[[], Iterable[Connection]],
        wall: Callable[[], float],
        alert: bool,
        log: logging.Logger,
    ) -> None:
        self._records = records
        self._connections = connections
        self._wall = wall
        self._alert = alert
        self._log = log
        self._seen: dict[int, Unmanaged] = {}

    def listed(self, device: str, listed: Mapping[int, int]) -> None:
        """What the driver lists on a device now, by pid."""
        # A kernel that was announced and never came is no session, whatever its server says of it.
        sessions = [one for one in self._records if one.core_id is not None and not one.unmanaged_reason]
        managed = {pid for record in sessions for pid in (record.pid, *record.pids)}
        there = {pid: amount for pid, amount in listed.items() if pid not in managed and amount >= WORTH_BYTES}
        for pid, one in list(self._seen.items()):
            if pid not in there:
                one.bytes.pop(device, None)
                if not one.bytes:
                    del self._seen[pid]
        for pid, amount in there.items():
            one = self._seen.get(pid) or self._found(pid)
            self._place(one)
            one.bytes[device] = amount
            one.looks += 1
            if one.looks == LOOKS and self._alert:
                self._log.warning(
                    "%s of %s uses %s of %s without a session", one.command, one.owner.name, bytes_text(amount), device
                )

    def rows(self, owner: Owner | None = None) -> list[dict[str, Any]]:
        """All that use a device without a session, or one owner's."""
        return [
            one.row(device)
            for one in self._seen.values()
            if one.looks >= LOOKS and owner in (None, one.owner)
            for device in one.bytes
        ]

    def bytes_of(self, user: str) -> int:
        """What a user's processes hold without a session."""
        return sum(row["bytes"] for row in self.rows() if row["user"] == user)

    def _found(self, pid: int) -> Unmanaged:
        self._seen[pid] = Unmanaged(pid, _by_uid(pid), "", None, {}, self._wall())
        return self._seen[pid]

    def _place(self, one: Unmanaged) -> None:
        """Below whose kernel or server it runs, which may be heard of after it is: a backend that starts knows nobody. Where
        they are gone, it stays theirs. And what it is called: one that was just forked has its parent's name, or none."""
        if one.looks < LOOKS:
            one.command = title(one.pid)
        record = next((record for record in self._records if record.pid and belongs(one.pid, record.pid)), None)
        if record is not None:
            one.owner, one.session = record.owner, record.session
        else:
            one.owner = self._of_a_server(one.pid) or one.owner

    def _of_a_server(self, pid: int) -> Owner | None:
        servers = {one.credentials.pid: one.owner for one in self._connections() if one.role == "server"}
        above: int | None = pid
        while above is not None and above > 1:
            if above in servers:
                return servers[above]
            above = processes.parent(above)
        return None


def _by_uid(pid: int) -> Owner:
    try:
        uid = os.stat(processes.PROC / str(pid)).st_uid
    except OSError:
        return Owner("", "somebody who is gone")
    return Owner(str(uid), user_name(uid))
