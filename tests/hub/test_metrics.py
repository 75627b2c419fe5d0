"""Figures per user for admins, and a dashboard that asks for nothing that isn't there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

import jupyter_salus.hub
from jupyter_salus.hub.hosts import Told
from jupyter_salus.hub.metrics import text
from jupyter_salus.protocol.messages import StateChanged
from jupyter_salus.server.held import HeldState
from jupyter_salus.server.metrics import SalusCollector

HERE = Path(jupyter_salus.hub.__file__).parent
USER = {
    "name": 'a"da',
    "sessions": 2,
    "unmanaged": 1,
    "waiting": 1,
    "persistent_bytes": 5,
    "evicted_bytes": 6,
    "unmanaged_bytes": 7,
    "used_s": 1.5,
}
DEVICE = {"id": "gpu:0", "policy": "fair", "capacity_bytes": 10, "foreign_bytes": 2, "free_bytes": 3}


#: What a Jupyter server's own `/metrics` is made of.
STATE = StateChanged(
    revision=1,
    previous_revision=0,
    as_of=0.0,
    devices=({**DEVICE, "draining": None},),
    lanes=({"id": "lane", "device": "gpu:0"},),
    sessions=({"id": "s", "state": "waiting", "device": "gpu:0", "waiting_since": 1.0},),
)


class Fed:
    """A server's feed, as far as gauges look at it."""

    connected = True

    def __init__(self) -> None:
        self.held = HeldState(lambda kernel_id: False)
        self.held.apply(STATE)


Samples = dict[str, list[tuple[dict[str, str], float]]]


def samples() -> Samples:
    """Those of the service's page, by name."""
    told = [Told("one", None, {}, {"devices": [DEVICE]}, [USER]), Told("two", "cannot reach it")]
    return _by_name(text_string_to_metric_families(text(told).decode()))


def samples_of_a_server() -> Samples:
    collector, feed = SalusCollector(), Fed()
    collector.follow(feed)  # type: ignore[arg-type]
    return _by_name(collector.collect())


def _by_name(families: Iterable[Metric]) -> Samples:
    found: Samples = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_figures_are_of_users_and_devices_of_all_hosts() -> None:
    found = samples()
    assert found["salus_hub_backend_up"] == [({"host": "one"}, 1), ({"host": "two"}, 0)]
    ada = {"host": "one", "user": 'a"da'}
    assert found["salus_user_device_seconds_total"] == [(ada, 1.5)]
    assert found["salus_user_unmanaged_bytes"] == [(ada, 7)]
    assert found["salus_hub_device_free_bytes"] == [({"host": "one", "device": "gpu:0", "policy": "fair"}, 3)]


def test_a_servers_figures_name_no_user() -> None:
    labels = {name for rows in samples_of_a_server().values() for row, _ in rows for name in row}
    assert labels == {"device", "policy", "state"}


def test_the_dashboard_asks_for_figures_and_labels_that_there_are() -> None:
    board = json.loads((HERE / "grafana.json").read_text("utf-8"))
    there = {
        name: {label for row, _ in rows for label in row} for name, rows in (samples() | samples_of_a_server()).items()
    }
    asked = set()
    for panel in board["panels"]:
        for target in panel["targets"]:
            names = re.findall(r"salus_\w+", target["expr"])
            assert names, target
            asked.update(names)
            labels = {
                *re.findall(r"(\w+)=~?\"", target["expr"]),
                *(one.strip() for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for one in group.split(",")),
                *re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]),
            }
            for name in names:
                assert labels <= there[name], f"{target['expr']} asks for {labels - there[name]}"
    assert len(asked) >= 12
    query = board["templating"]["list"][1]["query"]
    assert query == "label_values(salus_hub_backend_up, host)"
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
