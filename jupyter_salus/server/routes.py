"""The table of addresses: path, verb, who may, what is done. Each verb's handler is made from its row, so none lacks access."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from jupyter_server.auth.decorator import authorized
from tornado import web

from . import endpoints
from .requests import SalusHandler

#: The action that Jupyter's authorizer is asked about, on the resource `salus`.
Access = Literal["read", "write"]
Endpoint = Callable[..., Awaitable[None]]

BASE = "salus/api"
_ID = r"(?P<id>[^/]+)"


@dataclass(frozen=True)
class Verb:
    """What one verb does on an address, and who may."""

    method: str
    access: Access
    endpoint: Endpoint


@dataclass(frozen=True)
class Route:
    """An address below `BASE`, as OpenAPI writes it, and its verbs."""

    path: str
    verbs: tuple[Verb, ...]

    @property
    def pattern(self) -> str:
        """The regular expression for tornado, without the server's base URL."""
        return f"/{BASE}{self.path.replace('{id}', _ID)}"


ROUTES: tuple[Route, ...] = (
    Route("/state", (Verb("GET", "read", endpoints.get_state),)),
    Route("/sessions", (Verb("GET", "read", endpoints.get_sessions),)),
    Route(
        "/sessions/{id}",
        (Verb("GET", "read", endpoints.get_session), Verb("PATCH", "write", endpoints.patch_session)),
    ),
    Route("/sessions/{id}/yield", (Verb("POST", "write", endpoints.post_yield),)),
    Route("/sessions/{id}/evict", (Verb("POST", "write", endpoints.post_evict),)),
    Route("/sessions/{id}/restore", (Verb("POST", "write", endpoints.post_restore),)),
    Route("/history", (Verb("GET", "read", endpoints.get_history),)),
    Route("/devices/{id}", (Verb("PATCH", "write", endpoints.patch_device),)),
)

#: Whatever else begins like one of ours is answered in our form, too.
NOT_FOUND = tuple(Verb(method, "read", endpoints.not_found) for method in ("GET", "POST", "PUT", "PATCH", "DELETE"))


def handlers() -> list[tuple[str, type[SalusHandler]]]:
    """Patterns and handler classes for the web application."""
    made = [(f"{route.pattern}/?", _handler(route.path, route.verbs)) for route in ROUTES]
    return [*made, (f"/{BASE}(?:/(.*))?", _handler("other", NOT_FOUND))]


def _handler(name: str, verbs: tuple[Verb, ...]) -> type[SalusHandler]:
    methods: dict[str, Any] = {verb.method.lower(): _method(verb) for verb in verbs}
    return type(f"SalusHandler[{name}]", (SalusHandler,), methods)


def _method(verb: Verb) -> Any:
    async def method(self: SalusHandler, *args: str, **kwargs: str) -> None:
        await verb.endpoint(self, *args, **kwargs)

    method.__name__ = verb.method.lower()
    method.__doc__ = verb.endpoint.__doc__
    checked: Any = web.authenticated(authorized(action=verb.access)(method))

    @functools.wraps(checked)
    async def admitted(self: SalusHandler, *args: str, **kwargs: str) -> None:
        await self.admit()
        done = checked(self, *args, **kwargs)
        if done is not None:  # a login page was answered instead
            await done

    return admitted
