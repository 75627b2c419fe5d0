"""`python -m jupyter_salus.hub`: the service page, as a service that JupyterHub starts or one that runs by itself.

The hub gives it its address, prefix and token by the environment (`JUPYTERHUB_…`). It reaches the backends' admin sockets, so
it runs as the backend's user or in its admin group.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from jupyterhub.services.auth import HubOAuth
from tornado import web
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket
from traitlets import Dict, Float, Unicode
from traitlets.config import Application

from ..errors import SalusError
from ..protocol.address import SOCKET_NAME, SYSTEM_DIRECTORY, admin_path
from ..protocol.version import VERSION
from .hosts import Hosts
from .page import routes

_HERE = Path(__file__).parent


class HubService(Application):
    """The page of all hosts' devices, lanes, sessions, users and limits, for JupyterHub's admins."""

    name = "jupyter-salus-hub"
    version = VERSION
    description = __doc__ or ""
    aliases = {  # noqa: RUF012  (traitlets declares them as instance variables)
        "config": "HubService.config_file",
        "backend": "HubService.backends",
        "reconcile": "HubService.reconcile_s",
        "log-level": "Application.log_level",
    }

    config_file = Unicode("", help="A Python configuration file.").tag(config=True)
    backends = Dict(
        {},
        help="The admin socket of each host's backend, by the host's name; by default this host's.",
    ).tag(config=True)
    reconcile_s = Float(
        60.0, min=0.0, help="Seconds between looks at who is a user of the hub still; 0: never. Needs `list:users`."
    ).tag(config=True)

    def initialize(self, argv: Any = None) -> None:
        """traitlets: the command line, then the file."""
        self.parse_command_line(argv)
        if self.config_file:
            path = Path(self.config_file).absolute()
            self.load_config_file(path.name, str(path.parent))
        self.log_level = self.log_level if self.log_level != 30 else 20

    def start(self) -> None:
        """Serve until SIGTERM or Ctrl-C."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        hosts = Hosts(self.backends or {os.uname().nodename: admin_path(f"{SYSTEM_DIRECTORY}/{SOCKET_NAME}")})
        prefix = os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "/")
        server = HTTPServer(application(hosts, prefix, self.log), xheaders=True)
        where = _listen(server)
        self.log.info("Serving %s at %s", prefix, where)
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        reconciling = asyncio.create_task(self._reconcile(hosts))
        await ended.wait()
        reconciling.cancel()
        await asyncio.gather(reconciling, return_exceptions=True)
        server.stop()
        await server.close_all_connections()
        await hosts.close()

    async def _reconcile(self, hosts: Hosts) -> None:
        """Users whom the hub removed are forgotten by the backends, their sockets with them."""
        while self.reconcile_s:
            await asyncio.sleep(self.reconcile_s)
            try:
                await hosts.forget(await users_of_hub())
            except (SalusError, OSError, ValueError) as error:
                self.log.warning("Users of the hub can't be compared with the backends': %s", error)
            except Exception as error:
                # The HTTP client's errors have no base of their own; one look less is no harm.
                self.log.warning("The hub can't be asked for its users: %r", error)


def application(hosts: Hosts, prefix: str, log: Any) -> web.Application:
    """The web application, below `prefix`."""
    return web.Application(
        [*routes(prefix)],
        hosts=hosts,
        prefix=prefix,
        log=log,
        hub_auth=HubOAuth.instance(),
        cookie_secret=secrets.token_bytes(32),
        xsrf_cookies=True,
        template_path=str(_HERE / "templates"),
        static_path=str(_HERE / "static"),
        static_url_prefix=f"{prefix}static/",
    )


async def users_of_hub() -> set[str]:
    """The names of all users, page by page. Raises what the HTTP client does."""
    api, token = os.environ["JUPYTERHUB_API_URL"], os.environ["JUPYTERHUB_API_TOKEN"]
    names: set[str] = set()
    offset: int | None = 0
    while offset is not None:
        request = HTTPRequest(
            f"{api}/users?offset={quote(str(offset))}&limit=200",
            headers={"Authorization": f"token {token}", "Accept": "application/jupyterhub-pagination+json"},
        )
        answer = await AsyncHTTPClient().fetch(request)
        page = json.loads(answer.body)
        names.update(one["name"] for one in page["items"])
        following = page["_pagination"]["next"]
        offset = following["offset"] if following else None
    return names


def _listen(server: HTTPServer) -> str:
    """Where. Raises `_CannotServe`."""
    url = urlsplit(os.environ.get("JUPYTERHUB_SERVICE_URL", "http://127.0.0.1:8100"))
    try:
        if url.scheme.startswith("http+unix") or url.scheme == "unix":
            path = url.path or url.netloc
            server.add_socket(bind_unix_socket(path))
            return path
        host = url.hostname or "127.0.0.1"
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, url.port or 80), family=family)
        bound.setblocking(False)
        server.add_socket(bound)
    except OSError as error:
        raise _CannotServe(
            f"cannot serve {url.geturl()}: {os.strerror(error.errno or 0)}; perhaps one of a hub that was killed serves it still"
        ) from error
    return url.geturl()


def main(argv: list[str] | None = None) -> int:
    """The exit status."""
    given = sys.argv[1:] if argv is None else argv
    try:
        _check(given)
        service = HubService()
        service.initialize(given)
        service.start()
    except _CannotServe as error:
        print(f"jupyter_salus.hub: {error}", file=sys.stderr)
        return 1
    return 0


class _CannotServe(Exception):
    """With what to do."""


def _check(argv: list[str]) -> None:
    for option, value in zip_longest(argv, argv[1:], fillvalue=""):
        said = value if option == "--backend" else option.removeprefix("--backend=")
        if option.startswith("--backend") and "=" not in said:
            raise _CannotServe(f"cannot use {said!r} as a backend: NAME=PATH is needed, PATH that of its admin socket")
    if not {"-h", "--help", "--help-all", "--version"} & set(argv) and not os.environ.get("JUPYTERHUB_API_TOKEN"):
        raise _CannotServe(
            "cannot serve without a token in JUPYTERHUB_API_TOKEN: a hub starts this as one of its services "
            "(c.JupyterHub.services), and gives it one"
        )
