"""The addresses of the service: the page, its live table, what its buttons do, and figures for Prometheus.

Who may look has `custom:salus:read`, who may act `custom:salus:admin`; JupyterHub says so for each request. A request that
changes something carries the page's XSRF token, as all pages of a hub do.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from jupyterhub.services.auth import HubOAuthCallbackHandler, HubOAuthenticated
from tornado import web

from ..errors import SalusError
from . import metrics
from .hosts import Hosts
from .scopes import ADMIN, READ
from .words import WORDS

#: What the buttons do: of sessions, and of devices.
SESSION_VERBS = ("evict", "restore", "yield", "pinned", "priority")
DEVICE_VERBS = ("policy", "drain")
POLICIES = ("fair", "fifo", "srtf", "pack", "priority")


class SalusPage(HubOAuthenticated, web.RequestHandler):
    """The base: who asks, what they may, and headers that keep others from framing or scripting the page."""

    @property
    def hosts(self) -> Hosts:
        hosts: Hosts = self.settings["hosts"]
        return hosts

    def may(self, scope: str) -> bool:
        """Whether the hub gave the one who asks this scope."""
        return bool(self.hub_auth.check_scopes({scope}, self.current_user))

    def need(self, scope: str) -> None:
        """Raises 403 without the scope."""
        if not self.may(scope):
            raise web.HTTPError(403, f"the scope {scope} is needed")

    def set_default_headers(self) -> None:
        """tornado: for every answer."""
        self.set_header("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; form-action 'self'")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """tornado: a page that says what is wrong."""
        error = (kwargs.get("exc_info") or (None, None, None))[1]
        said = error.log_message if isinstance(error, web.HTTPError) and error.log_message else self._reason
        self.render("error.html", status=status_code, said=said)

    async def table(self) -> str:
        """The part of the page that lives."""
        return self.render_string(
            "table.html",
            hosts=await self.hosts.told(),
            acts=self.may(ADMIN),
            policies=POLICIES,
            prefix=self.settings["prefix"],
            **WORDS,
        ).decode()


class IndexPage(SalusPage):
    """Everything."""

    @web.authenticated
    async def get(self) -> None:
        self.need(READ)
        self.render(
            "page.html",
            table=await self.table(),
            said=self.get_query_argument("said", ""),
            wrong=self.get_query_argument("wrong", ""),
            name=self.current_user["name"],
            # A script's request carries it even where it changes nothing, as everywhere in a hub.
            xsrf=self.xsrf_token.decode(),
            prefix=self.settings["prefix"],
        )


class TablePage(SalusPage):
    """The table alone, for the page's script."""

    @web.authenticated
    async def get(self) -> None:
        self.need(READ)
        self.write(await self.table())


class StatePage(SalusPage):
    """The same as JSON, for scripts with a token."""

    @web.authenticated
    async def get(self) -> None:
        self.need(READ)
        told = await self.hosts.told()
        self.set_header("Content-Type", "application/json")
        self.write(
            json.dumps(
                {
                    "hosts": [
                        {
                            "name": one.name,
                            "problem": one.problem,
                            "about": one.about,
                            "state": one.state or None,
                            "users": one.users,
                        }
                        for one in told
                    ]
                }
            )
        )


class MetricsPage(SalusPage):
    """Per user, for Prometheus with the token of a service that may read."""

    @web.authenticated
    async def get(self) -> None:
        self.need(READ)
        self.set_header("Content-Type", metrics.CONTENT_TYPE)
        self.write(metrics.text(await self.hosts.told()))


class ActPage(SalusPage):
    """What a button does; then the page again, which says how it went."""

    @web.authenticated
    async def post(self) -> None:
        self.need(ADMIN)
        verb, target = self.get_body_argument("verb"), self.get_body_argument("target")
        value = self.get_body_argument("value", "") or None
        host = self.get_body_argument("host")
        if verb not in (*SESSION_VERBS, *DEVICE_VERBS):
            raise web.HTTPError(400, f"there is no verb {verb[:80]}")
        try:
            await self.hosts[host].act(verb, target, value)
        except SalusError as error:
            answer = {"wrong": error.message}
        else:
            self.settings["log"].info("%s did %s %s on %s of %s", self.current_user["name"], verb, value, target, host)
            answer = {"said": f"done: {verb} {value or ''}".strip()}
        self.redirect(f"{self.settings['prefix']}?{urlencode(answer)}", status=303)


def routes(prefix: str) -> list[tuple[str, type[web.RequestHandler]]]:
    """Patterns and handlers below the service's prefix, which ends with a slash."""
    return [
        (prefix, IndexPage),
        (f"{prefix}table", TablePage),
        (f"{prefix}state", StatePage),
        (f"{prefix}metrics", MetricsPage),
        (f"{prefix}act", ActPage),
        (f"{prefix}oauth_callback", HubOAuthCallbackHandler),
    ]
