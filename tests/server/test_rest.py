"""The REST interface on a real server, with a real kernel and a real backend."""

from __future__ import annotations

import http.client
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from jupyter_salus.server.held import POLICIES
from jupyter_salus.server.requests import MAX_BODY_BYTES
from jupyter_salus.server.routes import BASE, ROUTES
from tests.manager.running import PATIENCE_S, Backend, JupyterServer, Talk, wait_for
from tests.server.test_openapi import DOCUMENT, validator

NOBODY = str(uuid.uuid4())


@pytest.fixture(scope="module")
def session(server: JupyterServer, backend: Backend) -> Iterator[str]:
    """The id of a session that touched the device once, and holds no turn."""
    kernel_id = server.open_notebook("a/rest.ipynb")["kernel"]["id"]
    backend.managed(kernel_id)
    with Talk(server, kernel_id) as talk:
        talk.run("for i in range(3_000_000): i * i")
    yield kernel_id
    server.shut_down(kernel_id)


def api(server: JupyterServer, method: str, path: str, status: int = 200, **options: Any) -> Any:
    """The JSON of an answer, which has this status and fits the OpenAPI file."""
    answer = server.request(method, f"{BASE}{path}", **options)
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"].startswith("application/json")
    body = answer.json()
    if status >= 400:
        validator("Error").validate(body)
        assert body["message"].startswith("cannot"), body
        return body
    where = path.partition("?")[0]
    template = next(route.path for route in ROUTES if _fits(route.path, where))
    responses = DOCUMENT["paths"][template][method.lower()]["responses"]
    schema = responses[str(status)]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    validator(schema).validate(body)
    return body


def _fits(template: str, path: str) -> bool:
    parts, others = template.split("/"), path.split("/")
    return len(parts) == len(others) and all(a in ("{id}", b) for a, b in zip(parts, others, strict=True))


def test_the_state_has_the_session_and_its_device(server: JupyterServer, session: str):
    state = wait_for(lambda: _state_with(server, session), "the session to be in the state")
    (row,) = [row for row in state["sessions"] if row["id"] == session]
    assert row["here"] and row["own"] and row["path"] == "a/rest.ipynb"
    assert [device["id"] for device in state["devices"]] == [row["device"]]
    assert state["backend"]["healthy"]
    assert set(state["devices"][0]["policies"]) == set(POLICIES), "the user's own backend lets its user choose"


def _state_with(server: JupyterServer, session: str) -> Any:
    state = api(server, "GET", "/state")
    return state if any(row["id"] == session for row in state["sessions"]) else None


def test_a_known_etag_is_answered_without_a_body(server: JupyterServer, session: str):
    def unchanged() -> bool:
        first = server.request("GET", f"{BASE}/state")
        again = server.request("GET", f"{BASE}/state", headers={"If-None-Match": first.headers["ETag"]})
        assert again.status_code == 200 or not again.content
        return again.status_code == 304

    # A change may come between the two.
    wait_for(unchanged, "two answers of one revision")


def test_an_old_etag_gets_the_whole_state(server: JupyterServer, session: str):
    answer = server.request("GET", f"{BASE}/state", headers={"If-None-Match": '"1-2-3"'})
    assert answer.status_code == 200 and answer.json()["revision"] > 0


def test_sessions_and_one_session(server: JupyterServer, session: str):
    wait_for(lambda: _state_with(server, session), "the session to be in the state")
    rows = api(server, "GET", "/sessions")["sessions"]
    assert session in [row["id"] for row in rows]
    assert api(server, "GET", f"/sessions/{session}")["id"] == session
    assert api(server, "GET", f"/sessions/{NOBODY}", 404)["code"] == "unknown_session"


def test_history(server: JupyterServer, session: str):
    history = api(server, "GET", "/history?since=0")
    assert session in [entry["session"] for entry in history["entries"]]
    since = history["revision"]
    assert all(entry["revision"] > since for entry in api(server, "GET", f"/history?since={since}")["entries"])
    for wrong in ("x", "-1", "1.5", "9" * 40):
        assert api(server, "GET", f"/history?since={wrong}", 400)["code"] == "bad_value"


def test_priority_and_pin_are_changed_and_answered(server: JupyterServer, backend: Backend, session: str):
    row = api(server, "PATCH", f"/sessions/{session}", json={"priority": "high", "pinned": True})
    assert (row["priority"], row["pinned"], row["here"]) == ("high", True, True)
    told = backend.session(session)
    assert told is not None and (told["priority"], told["pinned"]) == ("high", True)
    row = api(server, "PATCH", f"/sessions/{session}", json={"priority": "normal", "pinned": False})
    assert (row["priority"], row["pinned"]) == ("normal", False)
    assert api(server, "PATCH", f"/sessions/{NOBODY}", 404, json={"pinned": True})["code"] == "unknown_session"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "no json",
        '{"priority": "high"',
        "[]",
        "null",
        "{}",
        "\x00",
        '{"priority": 3}',
        '{"priority": "highest"}',
        '{"priority": null}',
        '{"pinned": "yes"}',
        '{"pinned": 1}',
        '{"pinned": true, "owner": "me"}',
        "[" * 5000,
    ],
)
def test_a_body_that_cannot_be_taken_changes_nothing(server: JupyterServer, backend: Backend, session: str, body: str):
    before = backend.session(session)
    assert api(server, "PATCH", f"/sessions/{session}", 400, data=body)["code"] == "bad_value"
    after = backend.session(session)
    assert before is not None and after is not None
    assert (after["priority"], after["pinned"]) == (before["priority"], before["pinned"])


def test_bytes_that_are_no_text_are_refused(server: JupyterServer, session: str):
    assert api(server, "PATCH", f"/sessions/{session}", 400, data=b"\xff\xfe{")["code"] == "bad_value"


@pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 4 * 1024 * 1024])
def test_a_huge_body_is_refused(server: JupyterServer, session: str, size: int):
    body = b'{"priority": "' + b"h" * size + b'"}'
    assert api(server, "PATCH", f"/sessions/{session}", 413, data=body)["code"] == "too_large"
    assert api(server, "POST", f"/sessions/{session}/yield", 413, data=body)["code"] == "too_large"


def test_verbs_that_cannot_be_done_now_say_why(server: JupyterServer, session: str):
    for verb in ("yield", "evict", "restore"):
        refused = api(server, "POST", f"/sessions/{session}/{verb}", 409)
        assert refused["code"] == "not_possible"
        assert api(server, "POST", f"/sessions/{NOBODY}/{verb}", 404)["code"] == "unknown_session"


def test_a_users_own_backend_lets_the_server_change_a_devices_policy(server: JupyterServer, session: str):
    device = api(server, "GET", "/state")["devices"][0]["id"]
    try:
        changed = api(server, "PATCH", f"/devices/{device}", json={"policy": "fifo"})
        assert changed["policy"] == "fifo" and "fifo" in changed["policies"]
    finally:
        assert api(server, "PATCH", f"/devices/{device}", json={"policy": "fair"})["policy"] == "fair"
    assert api(server, "PATCH", f"/devices/{device}", 400, json={"policy": "mine"})["code"] == "bad_value"
    assert api(server, "PATCH", f"/devices/{device}", 400, json={"priority": "high"})["code"] == "bad_value"
    assert api(server, "PATCH", "/devices/nothing", 404, json={"policy": "fair"})["code"] == "unknown_device"


def test_without_a_login_nothing_is_told_or_done(server: JupyterServer, session: str):
    for route in ROUTES:
        for verb in route.verbs:
            url = server.url(BASE + route.path.replace("{id}", session))
            answer = requests.request(verb.method, url, json={"priority": "high"}, timeout=PATIENCE_S)
            assert answer.status_code == 403, f"{verb.method} {route.path}"
            assert answer.json()["code"] == "not_allowed"
            assert session not in answer.text.replace(url, "").replace(answer.request.path_url, "")


def test_a_refusal_leaves_the_connection_open_for_the_next_request(server: JupyterServer, session: str):
    """What is refused for who asks is refused once its body is read: a proxy in between gets the whole of the answer."""
    body = b'{"priority": "' + b"h" * 300_000 + b'"}'
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        for _ in range(2):
            connection.request("PATCH", f"{server.base_url}{BASE}/sessions/{session}", body)
            response = connection.getresponse()
            assert (response.status, json.loads(response.read())["code"]) == (403, "not_allowed")
            assert not response.will_close
    finally:
        connection.close()


def test_other_verbs_and_addresses_are_refused_in_the_same_form(server: JupyterServer, session: str):
    assert api(server, "DELETE", f"/sessions/{session}", 405)["code"] == "method_not_allowed"
    assert api(server, "POST", "/state", 405)["code"] == "method_not_allowed"
    assert api(server, "GET", "/nothing", 404)["code"] == "not_found"
    assert api(server, "GET", "", 404)["code"] == "not_found"
    assert api(server, "POST", f"/sessions/{session}/explode", 404)["code"] == "not_found"


def test_the_gauges_are_those_of_the_state(server: JupyterServer, session: str):
    wait_for(lambda: _state_with(server, session), "the session to be in the state")
    device = api(server, "GET", "/state")["devices"][0]
    lines = server.request("GET", "metrics").text.splitlines()
    gauges = dict(line.rsplit(" ", 1) for line in lines if line.startswith("salus_"))
    assert float(gauges["salus_backend_up"]) == 1
    assert float(gauges[f'salus_device_capacity_bytes{{device="{device["id"]}"}}']) == device["capacity_bytes"]
    assert sum(float(value) for name, value in gauges.items() if name.startswith("salus_sessions")) >= 1


def test_the_browser_may_not_keep_an_error(server: JupyterServer):
    answer = server.request("GET", f"{BASE}/sessions/{NOBODY}")
    assert answer.headers["Cache-Control"] == "no-store"
    assert json.loads(answer.text)["detail"] == {"session": NOBODY}
