"""Figures per user and device of all hosts, in Prometheus' text form. Admins read them here, and nobody else anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .hosts import Told

__all__ = ["CONTENT_TYPE", "text"]

USER_GAUGES = {
    "sessions": "Sessions that have a seat",
    "unmanaged": "Kernels that run without a session's rights",
    "waiting": "Sessions that wait for a turn or for room",
    "persistent_bytes": "Memory on devices",
    "evicted_bytes": "Memory that was moved to host memory",
    "unmanaged_bytes": "Device memory of processes without a session",
}
DEVICE_GAUGES = {
    "capacity_bytes": "Memory of the device",
    "foreign_bytes": "Used by what isn't a session",
    "free_bytes": "Given to nobody",
}


class _Collector(Collector):
    def __init__(self, told: Iterable[Told]) -> None:
        self._told = list(told)

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("salus_hub_backend_up", "Whether the host's backend answers", labels=["host"])
        users = {
            name: GaugeMetricFamily(f"salus_user_{name}", help, labels=["host", "user"])
            for name, help in USER_GAUGES.items()
        }
        used = CounterMetricFamily("salus_user_device_seconds", "Device time used", labels=["host", "user"])
        devices = {
            name: GaugeMetricFamily(f"salus_hub_device_{name}", help, labels=["host", "device", "policy"])
            for name, help in DEVICE_GAUGES.items()
        }
        for told in self._told:
            up.add_metric([told.name], float(told.problem is None))
            for row in told.users:
                for name, family in users.items():
                    family.add_metric([told.name, row["name"]], float(row.get(name, 0)))
                used.add_metric([told.name, row["name"]], float(row["used_s"]))
            for row in told.state.get("devices", ()):
                for name, family in devices.items():
                    family.add_metric([told.name, row["id"], row["policy"]], float(row[name]))
        yield up
        yield from users.values()
        yield used
        yield from devices.values()


def text(told: Iterable[Told]) -> bytes:
    """The answer to a scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(told))
    made: bytes = generate_latest(registry)
    return made
