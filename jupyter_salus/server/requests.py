"""The base of all handlers: bounded bodies, errors as `{"code", "message", "detail"}`, authentication from the route table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado import web

from ..errors import BackendGone, BadValue, SalusError
from .feed import Feed

#: What a request's body may have, in bytes. More is read and thrown away, so that the answer arrives, and refused.
MAX_BODY_BYTES = 16 * 1024

#: Codes of refusals that come from HTTP itself, by status.
_CODES = {
    400: "bad_request",
    401: "not_authenticated",
    403: "not_allowed",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
}


@web.stream_request_body
class SalusHandler(ExtensionHandlerMixin, APIHandler):
    """One request. What it does is a function of `endpoints`; the route table says which, and who may."""

    auth_resource = "salus"

    async def prepare(self) -> None:  # type: ignore[override]
        """Called before the body is read, and so too early to refuse: a connection that is closed with its body unread is,
        behind a proxy, an answer that doesn't arrive. `admit` does what Jupyter's handlers do here."""
        self._body = bytearray()
        self._body_bytes = 0
        # A browser that looks on isn't a person at work: it mustn't keep a server from being culled.
        self._track_activity = self.request.method not in ("GET", "HEAD")

    async def admit(self) -> None:
        """Find out who asks, and refuse what comes from elsewhere. Called by each verb once the body is there."""
        await super().prepare()

    def data_received(self, chunk: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(chunk)
        if self._body_bytes <= MAX_BODY_BYTES:
            self._body += chunk

    @property
    def feed(self) -> Feed:
        """The server's subscription."""
        feed: Feed = self.settings["salus_feed"]
        return feed

    def body(self, fields: Mapping[str, type]) -> dict[str, Any]:
        """The JSON object of the body. Raises `BadValue` for anything but an object with some of these fields and types."""
        self.refuse_long_body()
        try:
            found = json.loads(self._body.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise BadValue(f"cannot read the body of {self._body_bytes} bytes as JSON: {error}") from error
        if not isinstance(found, dict):
            raise BadValue(f"cannot read the body: it holds a {type(found).__name__}, an object is needed")
        known = ", ".join(fields)
        for name, value in found.items():
            if name not in fields:
                raise BadValue(f"cannot change {name[:80]!r}: there is only {known}", {"field": name[:80]})
            if type(value) is not fields[name]:
                raise BadValue(
                    f"cannot set {name} to {json.dumps(value)[:80]}: a {fields[name].__name__} is needed",
                    {"field": name},
                )
        if not found:
            raise BadValue(f"cannot change nothing: the body names none of {known}")
        return found

    def refuse_long_body(self) -> None:
        """Raises 413 if the body was over the limit."""
        if self._body_bytes > MAX_BODY_BYTES:
            raise web.HTTPError(413, f"cannot take a body of {self._body_bytes} bytes: the limit is {MAX_BODY_BYTES}")

    def answer(self, body: Any) -> None:
        """Answer 200 with JSON."""
        self.finish(json.dumps(body, separators=(",", ":")))

    def log_exception(self, typ: Any, value: BaseException | None, tb: Any) -> None:
        """A refusal is no fault of the server's; only what nobody foresaw is logged with its traceback."""
        if isinstance(value, SalusError) and value.status < 500:
            return
        if isinstance(value, SalusError):
            self.log.debug("Salus: %s %s: %s", self.request.method, self.request.path, value)
            return
        super().log_exception(typ, value, tb)

    def _log(self) -> None:
        """The access log; that the backend is gone is there once already, and each tab's poll would repeat it."""
        if self.get_status() == BackendGone.status:
            self.log.debug("503 %s %s", self.request.method, self.request.path)
            return
        super()._log()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """The body of an error."""
        error = (kwargs.get("exc_info") or (None, None, None))[1]
        if isinstance(error, SalusError):
            self.set_status(error.status)
            code, message, detail = error.code, error.message, error.detail
        else:
            code = _CODES.get(status_code, "internal" if status_code >= 500 else "bad_request")
            message, detail = _sentence(self, status_code, error), {}
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps({"code": code, "message": message, "detail": detail}))


def _sentence(handler: SalusHandler, status: int, error: BaseException | None) -> str:
    what = f"{handler.request.method} {handler.request.path}"
    if status == 404:
        return f"cannot answer {what}: there is no such address"
    if status == 405:
        return f"cannot answer {what}: this address doesn't take {handler.request.method}"
    if isinstance(error, web.HTTPError) and status < 500:
        said = error.log_message or ""
        return said if said.startswith("cannot") else f"cannot answer {what}: {said or HTTPStatus(status).phrase}"
    return f"cannot answer {what}: an error inside the server, which its log tells"
