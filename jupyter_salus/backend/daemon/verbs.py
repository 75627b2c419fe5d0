"""The verbs of `act`: what people ask of sessions and devices, who may, and what is refused with which error."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...errors import BadValue, NotAllowed, NotPossible, UnknownDevice
from ...protocol.messages import Act
from ..core import events as core
from ..core.events import Event
from ..devices.base import Device
from .connections import Connection
from .guests import PRIORITIES
from .profiles import Profiles
from .records import Record, Records
from .shares import Shares

POLICIES = ("fair", "fifo", "srtf", "pack", "priority")
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Verbs:
    """`retire()` is called when an admin asks the backend to make way for a newer one; it raises if it can't."""

    def __init__(
        self,
        records: Records,
        devices: Mapping[str, Device],
        profiles: Profiles,
        shares: Shares,
        tell: Callable[[Event], None],
        retire: Callable[[], None],
    ) -> None:
        self._records = records
        self._devices = devices
        self._profiles = profiles
        self._shares = shares
        self._tell = tell
        self._retire = retire

    def act(self, connection: Connection, said: Act) -> None:
        """Do what was asked. Raises `NotAllowed`, `UnknownSession`, `UnknownDevice`, `BadValue`, `NotPossible`."""
        match said.verb:
            case "priority":
                self._priority(self._session(connection, said), said)
            case "pinned":
                self._pinned(self._session(connection, said), said)
            case "yield":
                record = self._session(connection, said)
                self._asked(record, core.YieldAsked(self._governed(record, "pass its turn on")))
            case "evict":
                record = self._session(connection, said)
                self._asked(record, core.EvictAsked(self._movable(record, "be moved out")))
            case "restore":
                record = self._session(connection, said)
                self._asked(record, core.RestoreAsked(self._movable(record, "be brought back")))
            case "policy":
                self._policy(connection, said)
            case "drain":
                self._drain(connection, said)
            case "retire":
                _admin(connection, "have the backend end")
                self._retire()
            case _:
                raise BadValue(
                    f"cannot do {said.verb[:80]!r}: the verbs are priority, pinned, yield, evict, restore, policy, drain, retire"
                )

    def _session(self, connection: Connection, said: Act) -> Record:
        record = self._records.found(said.target)
        if record.owner != connection.owner and not connection.admin:
            raise NotAllowed(
                f"cannot {said.verb} session {said.target}: it is somebody else's, this is {connection.owner.name}; "
                "the admin socket may"
            )
        return record

    def _asked(self, record: Record, event: Event) -> None:
        """Tell the core; what it refuses names the session by its id, and people know it by its notebook."""
        try:
            self._tell(event)
        except NotPossible as error:
            known = f"session {record.core_id}"
            raise NotPossible(error.message.replace(known, record.name or known), error.detail) from error

    def _priority(self, record: Record, said: Act) -> None:
        if said.value not in PRIORITIES:
            raise BadValue(
                f"cannot give session {said.target} priority {said.value!r}: {', '.join(PRIORITIES)} are known"
            )
        self._shares.allow(record, said.value)
        if record.core_id is not None and not record.leaving:
            self._tell(core.PriorityChanged(record.core_id, said.value))
        record.priority = said.value
        self._profiles.wish(record.owner.key, record.session, record.priority, record.pinned)

    def _pinned(self, record: Record, said: Act) -> None:
        pinned = _TRUTH.get((said.value or "").lower())
        if pinned is None:
            raise BadValue(f"cannot set pinned of session {said.target} to {said.value!r}: true or false is needed")
        if record.core_id is not None and not record.leaving:
            self._tell(core.PinChanged(record.core_id, pinned))
        record.pinned = pinned
        self._profiles.wish(record.owner.key, record.session, record.priority, record.pinned)

    def _policy(self, connection: Connection, said: Act) -> None:
        _admin(connection, "change a device's policy")
        if said.target not in self._devices:
            raise UnknownDevice(f"cannot find a device {said.target[:80]!r}: there is {', '.join(self._devices)}")
        if said.value not in POLICIES:
            raise BadValue(f"cannot give device {said.target} policy {said.value!r}: {', '.join(POLICIES)} are known")
        self._tell(core.PolicyChanged(said.target, said.value))

    def _drain(self, connection: Connection, said: Act) -> None:
        """`true`, or a reason that people are shown, begins it; `false` ends it."""
        _admin(connection, "drain a device")
        if said.target not in self._devices:
            raise UnknownDevice(f"cannot find a device {said.target[:80]!r}: there is {', '.join(self._devices)}")
        value = said.value or "true"
        draining = _TRUTH.get(value.lower(), True)
        reason = "maintenance" if value.lower() in _TRUTH else value[:200]
        self._tell(core.DrainAsked(said.target, draining, reason if draining else ""))

    def _governed(self, record: Record, what: str) -> str:
        name = record.name or record.session
        if record.unmanaged_reason is not None:
            raise NotPossible(f"cannot have {name} {what}: it isn't managed ({record.unmanaged_reason})")
        if record.core_id is None:
            raise NotPossible(f"cannot have {name} {what}: its kernel hasn't come to the backend yet")
        if record.leaving:
            raise NotPossible(f"cannot have {name} {what}: its kernel is gone")
        return record.core_id

    def _movable(self, record: Record, what: str) -> str:
        core_id = self._governed(record, what)
        can = self._devices[record.device].capabilities()
        if not can.moves:
            name = record.name or record.session
            raise NotPossible(f"cannot have {name} {what}: {can.lacks.get('moves', 'its device moves nothing')}")
        return core_id


def _admin(connection: Connection, what: str) -> None:
    if not connection.admin:
        raise NotAllowed(f"cannot {what} from here: the backend's admin socket, beside this one, may")
