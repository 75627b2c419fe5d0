"""Changes reach every listener of the server's events, and what they add up to is the state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import websocket

from jupyter_salus.protocol.codec import from_wire
from jupyter_salus.protocol.messages import StateChanged
from jupyter_salus.server.events import SCHEMA_ID
from jupyter_salus.server.held import HeldState
from tests.manager.running import PATIENCE_S, Backend, JupyterServer, wait_for


class Listener:
    """A browser tab: a state from a GET, kept up to date by events."""

    def __init__(self, server: JupyterServer) -> None:
        url = f"ws://127.0.0.1:{server.port}{server.base_url}api/events/subscribe?token={server.token}"
        self._socket = websocket.create_connection(url, timeout=PATIENCE_S)
        self.arrived: list[float] = []

    def next(self) -> dict[str, Any]:
        """The data of the next event of ours."""
        while True:
            event = json.loads(self._socket.recv())
            if event["schema_id"] == SCHEMA_ID:
                return event

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener(server: JupyterServer) -> Iterator[Listener]:
    wait_for(lambda: server.request("GET", "salus/api/state").ok, "the server to know the state")
    made = Listener(server)
    yield made
    made.close()


def _change(event: dict[str, Any]) -> StateChanged:
    change = from_wire({"kind": "state_changed", **event})
    assert isinstance(change, StateChanged)
    return change


def test_the_events_add_up_to_the_state(server: JupyterServer, backend: Backend, listener: Listener):
    start = server.request("GET", "salus/api/state").json()
    here: set[str] = set()
    held = HeldState(here=here.__contains__)
    held.apply(_change({**start, "previous_revision": 0}))
    session = server.open_notebook("events.ipynb")
    kernel_id = session["kernel"]["id"]
    here.add(kernel_id)
    backend.managed(kernel_id)
    assert server.request("PATCH", f"salus/api/sessions/{kernel_id}", json={"priority": "low"}).ok
    row: dict[str, Any] | None = None
    while row is None or row["priority"] != "low":
        event = listener.next()
        if event["revision"] <= held.revision:
            continue
        assert event["previous_revision"] == held.revision, "no event is missing"
        held.apply(_change(event))
        row = held.session(kernel_id)
    assert row["here"] and row["name"] == "events.ipynb"
    server.request("DELETE", f"api/sessions/{session['id']}")
    while held.session(kernel_id) is not None:
        event = listener.next()
        if event["revision"] > held.revision:
            held.apply(_change(event))
    now = server.request("GET", "salus/api/state").json()
    assert kernel_id not in [row["id"] for row in now["sessions"]]


def test_two_tabs_hear_the_same_of_one_subscription(server: JupyterServer, backend: Backend, listener: Listener):
    other = Listener(server)
    kernel_id = server.start_kernel()
    try:
        heard = []
        for tab in (listener, other):
            event = tab.next()
            while kernel_id not in [row["id"] for row in event["sessions"]]:
                event = tab.next()
            heard.append(event)
        assert heard[0] == heard[1]
    finally:
        other.close()
        server.shut_down(kernel_id)
    backend.without(kernel_id)
