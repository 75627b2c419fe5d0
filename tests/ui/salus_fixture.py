"""A server extension that answers `salus/api/…` from a state which the test sets: for what real kernels can't be brought to.

The wire is the real one: same addresses, same event schema, same errors. `salus-test/control` sets what is answered.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from jupyter_server.base.handlers import APIHandler
from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import url_path_join
from tornado import web

import jupyter_salus.server

SCHEMA = Path(jupyter_salus.server.__file__).parent / "state_v1.yaml"
SCHEMA_ID = "https://schema.jupyter-salus.org/state/v1"


class Stage:
    """What is answered, and what was asked."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.history: dict[str, Any] = {"revision": 0, "since": 0, "complete": True, "entries": []}
        #: Status and body of the answer to each request below `salus/api`; None answers the state.
        self.fault: tuple[int, dict[str, Any]] | None = None
        #: The same for requests that change something.
        self.refusal: tuple[int, dict[str, Any]] | None = None
        self.asked: list[dict[str, Any]] = []

    def session(self, id: str) -> dict[str, Any]:
        for row in self.state["sessions"]:
            if row["id"] == id:
                return dict(row)
        raise web.HTTPError(404)


class StageHandler(APIHandler):
    @property
    def stage(self) -> Stage:
        stage: Stage = self.settings["salus_stage"]
        return stage

    def fail(self, fault: tuple[int, dict[str, Any]]) -> None:
        self.set_status(fault[0])
        self.finish(json.dumps(fault[1]))


class ApiHandler(StageHandler):
    @web.authenticated
    def get(self, path: str) -> None:
        if self.stage.fault is not None:
            return self.fail(self.stage.fault)
        if path == "history":
            self.finish(json.dumps(self.stage.history))
            return None
        etag = f'"{self.stage.state["revision"]}"'
        self.set_header("ETag", etag)
        if self.request.headers.get("If-None-Match") == etag:
            self.set_status(304)
            self.finish()
        else:
            self.finish(json.dumps(self.stage.state))
        return None

    @web.authenticated
    def patch(self, path: str) -> None:
        self._change(path, json.loads(self.request.body))

    @web.authenticated
    def post(self, path: str) -> None:
        self._change(path, {})

    def _change(self, path: str, body: dict[str, Any]) -> None:
        self.stage.asked.append({"method": self.request.method, "path": path, "body": body})
        if self.stage.refusal is not None:
            return self.fail(self.stage.refusal)
        kind, id, *_ = path.split("/")
        self.finish(json.dumps(self.stage.session(id) if kind == "sessions" else {}))
        return None


class ControlHandler(StageHandler):
    """`POST` sets what the body names and sends its `event`; `GET` tells what was asked."""

    @web.authenticated
    def get(self) -> None:
        self.finish(json.dumps(self.stage.asked))

    @web.authenticated
    def post(self) -> None:
        body = json.loads(self.request.body)
        for name in ("state", "history", "fault", "refusal", "asked"):
            if name in body:
                setattr(self.stage, name, body[name])
        if "event" in body:
            self.event_logger.emit(schema_id=SCHEMA_ID, data=body["event"])
        self.finish("{}")


def _load_jupyter_server_extension(serverapp: ServerApp) -> None:
    app = serverapp.web_app
    app.settings["salus_stage"] = Stage()
    assert serverapp.event_logger is not None
    serverapp.event_logger.register_event_schema(yaml.safe_load(SCHEMA.read_text()))
    base = app.settings["base_url"]
    app.add_handlers(
        ".*$",
        [
            (url_path_join(base, "salus-test/control"), ControlHandler),
            (url_path_join(base, r"salus/api/(.+)"), ApiHandler),
        ],
    )
