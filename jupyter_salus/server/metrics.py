"""Gauges at the server's `/metrics`, read from the held state when they are asked for.

Set from what is there now, so that nothing goes stale or negative; registered once in a process, whatever number of
servers lives in it.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .feed import Feed


class SalusCollector(Collector):
    """The gauges of the feed that was followed last."""

    def __init__(self) -> None:
        self._feed: weakref.ref[Feed] | None = None

    def follow(self, feed: Feed) -> None:
        """Read the gauges from this feed from now on."""
        self._feed = weakref.ref(feed)

    def describe(self) -> Iterable[Metric]:
        """Called on registration, to find names that are taken."""
        return self._families().values()

    def collect(self) -> Iterable[Metric]:
        """Called for each scrape."""
        families = self._families()
        feed = None if self._feed is None else self._feed()
        if feed is None:
            return families.values()
        families["up"].add_metric([], float(feed.connected))
        if not feed.connected:
            return families.values()
        held = feed.held
        sessions = held.sessions()
        for state, count in Counter(str(row.get("state")) for row in sessions).items():
            families["sessions"].add_metric([state], count)
        waiting = Counter(str(row.get("device")) for row in sessions if row.get("waiting_since") is not None)
        lanes = Counter(str(row.get("device")) for row in held.lanes)
        for row in held.devices:
            device = str(row["id"])
            for name in ("capacity_bytes", "foreign_bytes", "free_bytes"):
                families[name].add_metric([device], float(row.get(name) or 0))
            families["policy"].add_metric([device, str(row.get("policy"))], 1.0)
            families["draining"].add_metric([device], float(row.get("draining") is not None))
            families["lanes"].add_metric([device], lanes[device])
            families["waiting"].add_metric([device], waiting[device])
        return families.values()

    def _families(self) -> dict[str, GaugeMetricFamily]:
        device = ["device"]
        return {
            "up": GaugeMetricFamily("salus_backend_up", "Whether the backend is there (1) or not (0)"),
            "sessions": GaugeMetricFamily("salus_sessions", "Sessions by state", labels=["state"]),
            "waiting": GaugeMetricFamily("salus_waiting_sessions", "Sessions that wait, by device", labels=device),
            "lanes": GaugeMetricFamily("salus_lanes", "Lanes by device", labels=device),
            "capacity_bytes": GaugeMetricFamily("salus_device_capacity_bytes", "Memory of the device", labels=device),
            "foreign_bytes": GaugeMetricFamily("salus_device_foreign_bytes", "Used by others", labels=device),
            "policy": GaugeMetricFamily(
                "salus_device_policy", "1 for the policy that the device has", labels=["device", "policy"]
            ),
            "draining": GaugeMetricFamily("salus_device_draining", "Whether it is drained", labels=device),
            "free_bytes": GaugeMetricFamily("salus_device_free_bytes", "Given to nobody", labels=device),
        }


_collector: SalusCollector | None = None


def follow(feed: Feed) -> None:
    """Have the process's gauges read from this feed."""
    global _collector
    if _collector is None:
        _collector = SalusCollector()
        REGISTRY.register(_collector)
    _collector.follow(feed)
