"""What the server makes of the backend's changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_salus.backend.daemon import verbs
from jupyter_salus.manager.names import Notebook
from jupyter_salus.protocol.codec import from_wire
from jupyter_salus.protocol.messages import StateChanged
from jupyter_salus.server.held import POLICIES, HeldState, merged

WIRE = Path(__file__).parent.parent / "wire"


def _change(row: dict[str, Any]) -> StateChanged:
    change = from_wire({"kind": "state_changed", **row})
    assert isinstance(change, StateChanged)
    return change


@pytest.fixture
def whole() -> StateChanged:
    state = json.loads((WIRE / "state.json").read_text())
    return _change({**state, "previous_revision": 0})


@pytest.fixture
def next_change() -> StateChanged:
    return _change(json.loads((WIRE / "event.json").read_text()))


def test_the_first_change_is_the_whole_state(whole: StateChanged):
    held = HeldState(here=lambda _: False)
    held.apply(whole)
    body = held.body()
    state = json.loads((WIRE / "state.json").read_text())
    assert {**body, "sessions": [{**row, "here": None} for row in body["sessions"]]} == {
        **state,
        "sessions": [{**row, "here": None} for row in state["sessions"]],
    }


def test_here_is_what_this_server_says_and_not_what_the_backend_says(whole: StateChanged):
    mine = str((whole.sessions or ())[0]["kernel_id"])
    held = HeldState(here=lambda kernel_id: kernel_id == mine)
    held.apply(whole)
    assert [row["id"] for row in held.sessions() if row["here"]] == [mine]


def test_devices_offer_the_policies_that_may_be_chosen_from_here(whole: StateChanged):
    assert set(POLICIES) == set(verbs.POLICIES)
    for may, offered in ((True, list(POLICIES)), (False, [])):
        held = HeldState(here=lambda _: False, rules=lambda may=may: may)  # type: ignore[misc]
        held.apply(whole)
        assert [device["policies"] for device in held.body()["devices"]] == [offered] * len(held.devices)


def test_changed_rows_replace_the_old_ones_in_place(whole: StateChanged, next_change: StateChanged):
    held = HeldState(here=lambda _: True)
    held.apply(whole)
    order = [row["id"] for row in held.sessions()]
    moved = held.apply(next_change)
    assert [row["id"] for row in held.sessions()] == order
    assert held.revision == next_change.revision
    assert set(moved.values()) == {("running", "waiting"), ("waiting", "running")}


def test_a_removed_session_is_gone_and_told(whole: StateChanged):
    held = HeldState(here=lambda _: True)
    held.apply(whole)
    id = held.sessions()[0]["id"]
    change = _change({"revision": 900, "previous_revision": held.revision, "as_of": 1.0, "removed_sessions": [id]})
    assert held.apply(change) == {id: ("running", None)}
    assert held.session(id) is None
    assert held.event(change)["removed_sessions"] == [id]


def test_another_backend_replaces_everything(whole: StateChanged):
    held = HeldState(here=lambda _: True)
    held.apply(whole)
    before = held.etag
    backend = {"version": "9", "pid": 1, "healthy": True, "started_at": 5.0}
    other = {"revision": 812, "previous_revision": 0, "as_of": 1.0, "backend": backend, "devices": [], "lanes": []}
    held.apply(_change(other))
    assert held.sessions() == []
    assert held.etag != before, "the same revision of another backend is another state"


def test_the_body_is_encoded_once_a_revision(whole: StateChanged, next_change: StateChanged):
    held = HeldState(here=lambda _: True)
    held.apply(whole)
    first = held.encoded()
    assert held.encoded()[1] is first[1]
    held.apply(next_change)
    assert held.encoded()[0] != first[0]


def test_a_rename_changes_the_etag_and_the_row(whole: StateChanged):
    held = HeldState(here=lambda _: True)
    held.apply(whole)
    kernel_id = str(held.sessions()[0]["kernel_id"])
    before = held.etag
    held.name({kernel_id: Notebook("renamed.ipynb", "b/renamed.ipynb")})
    assert held.etag != before
    row = held.session(kernel_id)
    assert row is not None and (row["name"], row["path"]) == ("renamed.ipynb", "b/renamed.ipynb")
    again = held.etag
    held.name({kernel_id: Notebook("renamed.ipynb", "b/renamed.ipynb")})
    assert held.etag == again


def test_two_changes_in_one_are_the_same_as_one_after_the_other(whole: StateChanged, next_change: StateChanged):
    ids = [row["id"] for row in next_change.sessions or ()]
    row = {**(whole.sessions or ())[2], "state": "evicted"}
    last = _change(
        {
            "revision": 814,
            "previous_revision": 813,
            "as_of": 2.0,
            "sessions": [row],
            "removed_sessions": [ids[0]],
            "devices": [],
        }
    )
    apart, together = HeldState(here=lambda _: True), HeldState(here=lambda _: True)
    for change in (whole, next_change, last):
        apart.apply(change)
    both = merged(next_change, last)
    together.apply(whole)
    together.apply(both)
    assert together.body() == apart.body()
    assert (both.previous_revision, both.revision) == (812, 814)
    assert merged(both, whole) is whole


def test_a_session_that_comes_back_after_its_removal_stays(whole: StateChanged):
    row = (whole.sessions or ())[0]
    gone = _change({"revision": 813, "previous_revision": 812, "as_of": 1.0, "removed_sessions": [row["id"]]})
    back = _change({"revision": 814, "previous_revision": 813, "as_of": 1.0, "sessions": [row]})
    held = HeldState(here=lambda _: True)
    held.apply(whole)
    held.apply(merged(gone, back))
    assert held.session(row["id"]) is not None
