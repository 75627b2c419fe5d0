"""On which device a session begins: the emptiest one, by what sessions hold and others use; among equals the one with the
fewest sessions, then the first."""

from __future__ import annotations

from collections.abc import Mapping

from ..devices.base import Device
from .gauges import Gauges
from .records import Records
from .sampling import Sampling


class Placement:
    """Chooses among the devices of a backend. A session stays where it began."""

    def __init__(self, devices: Mapping[str, Device], records: Records, gauges: Gauges, sampling: Sampling) -> None:
        self._devices = devices
        self._records = records
        self._gauges = gauges
        self._sampling = sampling

    def device(self) -> str:
        """The id of the device for the next session."""
        if len(self._devices) == 1:
            return next(iter(self._devices))
        sessions = dict.fromkeys(self._devices, 0)
        for record in self._records:
            sessions[record.device] += 1
        order = list(self._devices)
        return min(order, key=lambda id: (-self._free_bytes(id), sessions[id], order.index(id)))

    def told(self, id: str) -> dict[str, object]:
        """What a server is told of where its kernel begins: the device, and how the driver calls it where it is a GPU."""
        uuid = getattr(self._devices[id], "uuid", None)
        return {"device": id, "uuid": uuid, "among": len(self._devices)}

    def _free_bytes(self, id: str) -> int:
        figures = self._sampling.told[id]
        held = sum(self._gauges.held(id).values())
        return figures.capacity_bytes - figures.foreign_bytes - figures.reserve_bytes - held
