"""Figures per user for admins, and a dashboard that asks for nothing that isn't there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

import jupyter_salus.hub
from jupyter_salus.hub.hosts import Told
from jupyter_salus.hub.metrics import text

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


def samples() -> dict[tuple[str, str], float]:
    told = [Told("one", None, {}, {"devices": [DEVICE]}, [USER]), Told("two", "cannot reach it")]
    found = {}
    for family in text_string_to_metric_families(text(told).decode()):
        for sample in family.samples:
            found[sample.name, sample.labels.get("user") or sample.labels.get("device") or sample.labels["host"]] = (
                sample.value
            )
    return found


def test_figures_are_of_users_and_devices_of_all_hosts() -> None:
    found = samples()
    assert (found["salus_hub_backend_up", "one"], found["salus_hub_backend_up", "two"]) == (1, 0)
    assert found["salus_user_device_seconds_total", 'a"da'] == 1.5
    assert found["salus_user_unmanaged_bytes", 'a"da'] == 7
    assert found["salus_hub_device_free_bytes", "gpu:0"] == 3


def test_the_dashboard_asks_for_what_there_is() -> None:
    board = json.loads((HERE / "grafana.json").read_text("utf-8"))
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"salus_\w+", target["expr"])
    }
    assert asked <= {name for name, _ in samples()}
    assert len(asked) >= 8
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
