"""A real JupyterHub with its proxy, real single-user servers of real Unix users, and two backends: root's and another's."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import requests
import websocket
from jupyterhub_idle_culler import cull_idle

from jupyter_salus.protocol.client import Client
from tests.conftest import RUN_MARK
from tests.hub.accounts import ROOT, Accounts, reachable
from tests.manager.running import JupyterServer, Talk, alive, end

#: Below which the hub serves: cookies and tokens must fit to it.
BASE = "/base/"
#: Where the proxy's package is: put there by npm, or found on the PATH.
PROXY = ROOT / ".venv" / "hub-proxy" / "node_modules" / ".bin" / "configurable-http-proxy"
PASSWORD = "a password of the test"
#: What keeps hubs and servers from loading what takes them seconds.
QUICK = str(Path(__file__).parent / "quick")

CONFIG = """
import json, os
from jupyter_salus.hub import SpawnHook, custom_scopes

said = json.loads({said!r})
hooks = {{name: SpawnHook(socket=socket) for name, socket in said["sockets"].items()}}
contained = SpawnHook(socket=said["sockets"]["others"], containers=True)

async def hook(spawner):
    if spawner.user.name in said["containers"]:
        spawner.volumes = {{}}
        await contained(spawner)
        (directory,) = spawner.volumes
        spawner.cmd = [*said["container"], directory, said["containers"][spawner.user.name], *said["singleuser"]]
        spawner.popen_kwargs = {{"preexec_fn": None}}  # as root, which makes the container
        return
    if spawner.user.name == said["prompt"]:
        spawner.environment = {{**spawner.environment, "JUPYTERHUB_ACTIVITY_INTERVAL": "1"}}
    await hooks.get(spawner.user.name, hooks["others"])(spawner)

c.JupyterHub.bind_url = said["url"]
c.JupyterHub.hub_port = said["hub_port"]
c.ConfigurableHTTPProxy.api_url = said["proxy_api"]
c.ConfigurableHTTPProxy.auth_token = said["token"]
c.ConfigurableHTTPProxy.command = [said["proxy"]]
c.ConfigurableHTTPProxy.pid_file = said["directory"] + "/proxy.pid"
c.JupyterHub.db_url = "sqlite:///" + said["directory"] + "/hub.sqlite"
c.JupyterHub.cookie_secret_file = said["directory"] + "/cookie_secret"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 0}}
c.JupyterHub.cleanup_proxy = False
c.JupyterHub.last_activity_interval = 0
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = said["password"]
c.Authenticator.allow_all = True
c.JupyterHub.allow_named_servers = True
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.pre_spawn_hook = hook
c.Spawner.cmd = said["singleuser"]
c.Spawner.args = ["--ServerApp.kernel_manager_class=jupyter_salus.Manager"]
c.Spawner.environment = said["environment"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
c.LocalProcessSpawner.interrupt_timeout = c.LocalProcessSpawner.term_timeout = 1
c.JupyterHub.custom_scopes = custom_scopes
c.JupyterHub.load_groups = said["groups"]
c.JupyterHub.load_roles = said["roles"]
c.JupyterHub.services = said["services"]
"""

#: What Docker makes, as far as anything here depends on it: pid and mount namespaces of its own, one directory of the host's
#: mounted, and an account of whatever number.
CONTAINER = [
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec"),
    """
    mount -t tmpfs -o mode=0755 none /run
    mount -t tmpfs -o mode=1777 none /mnt
    mkdir /run/jupyter-salus
    mount --bind "$1" /run/jupyter-salus
    mount -o remount,bind,ro /run/jupyter-salus
    export HOME=/mnt
    cd /mnt
    uid=$2
    shift 2
    exec setpriv --reuid="$uid" --regid="$uid" --clear-groups "$@"
    """,
    "sh",
]

#: What anything may take on a loaded machine, in seconds: a dozen kernels and four servers start at once.
PATIENCE_S = 180.0


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """What `condition` returns, once it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s for {what}"
        time.sleep(0.1)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened at a moment ago."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class SystemBackend:
    """A shared backend on the host device, as root or as one of the accounts."""

    def __init__(self, directory: Path, account: str | None, *options: str) -> None:
        directory.mkdir(mode=0o755)
        if account is not None:
            shutil.chown(directory, account)
        self.directory = directory
        self.socket = str(directory / "b.sock")
        self.admin_socket = str(directory / "b.adm")
        self.log = directory / "backend.log"
        self.limits = directory / "limits.toml"
        self.limits.touch(mode=0o644)
        become = ["setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups"] if account else []
        self.command = [*reachable(directory.parent), *become, sys.executable, "-m", "jupyter_salus.backend"]
        self.command += [f"--socket={self.socket}", "--shared", "--device=host", "--capacity=8GiB"]
        self.command += [f"--limits={self.limits}", *options]
        self.environment = {**os.environ, "JUPYTER_SALUS_STATE_DIR": str(directory / "state"), "HOME": str(directory)}
        # It is restarted within a test and ends with the module: no leak of the test's.
        del self.environment[RUN_MARK]
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment, cwd=ROOT
            )
        wait_for(lambda: self.process.poll() is not None or self.answers(), "the backend to answer")
        assert self.process.poll() is None, self.log.read_text()

    def answers(self) -> bool:
        try:
            self.ask("metrics")
        except Exception:
            return False
        return True

    def ask(self, what: str) -> dict[str, Any]:
        """At the admin door."""
        with Client(self.admin_socket, timeout=PATIENCE_S) as client:
            return client.ask(what)

    def sessions(self, user: str | None = None) -> dict[str, dict[str, Any]]:
        """All sessions, or one user's, by id."""
        return {row["id"]: row for row in self.ask("state")["sessions"] if user in (None, row["user"])}

    def user(self, name: str) -> dict[str, Any]:
        """What the backend tells admins of a user."""
        return next(row for row in self.ask("users")["users"] if row["name"] == name)

    def managed(self, id: str) -> dict[str, Any]:
        """The row of a session once its guest is there."""

        def found() -> dict[str, Any] | None:
            row = self.sessions().get(id)
            return row if row is not None and row["persistent_bytes"] > 0 else None

        row: dict[str, Any] = wait_for(found, f"the guest of session {id}")
        return row

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        end(self.process)
        assert "Traceback" not in self.log.read_text(), self.log.read_text()


class HubTalk(Talk):
    """A client of one kernel; a hub takes a token in the header alone."""

    def __init__(self, server: UserServer, kernel_id: str) -> None:
        url = f"ws://127.0.0.1:{server.port}{server.base_url}api/kernels/{kernel_id}/channels"
        header = {"Authorization": f"token {server.token}"}
        self._socket = websocket.create_connection(url, timeout=PATIENCE_S, header=header)
        self._framed = False
        self._session = uuid.uuid4().hex


class UserServer(JupyterServer):
    """A user's single-user server, reached through the hub's proxy with a token."""

    def __init__(self, hub: Hub, user: str, token: str, name: str = "") -> None:
        self.port = hub.port
        self.base_url = f"{BASE}user/{user}/{name + '/' if name else ''}"
        self.token = token
        self.http = requests.Session()
        self.http.headers["Authorization"] = f"token {token}"
        self.kernels: set[str] = set()

    def open_notebook(self, path: str, kernel: str = "python3") -> dict[str, Any]:
        """As JupyterLab: the notebook's file by the contents API, then its session."""
        content = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        made = self.request("PUT", f"api/contents/{path}", json={"type": "notebook", "content": content})
        assert made.ok, made.text
        model = {"path": path, "name": path, "type": "notebook", "kernel": {"name": kernel}}
        answer = self.request("POST", "api/sessions", json=model)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        self.kernels.add(found["kernel"]["id"])
        return found


class Hub:
    """JupyterHub as root. `sockets`: the user socket of each user's backend, and of the `others`."""

    def __init__(
        self, directory: Path, accounts: Accounts, sockets: dict[str, str], admin_socket: str, **more: Any
    ) -> None:
        self.directory = directory
        self.accounts = accounts
        self.port, hub_port, proxy_port, service_port = free_ports(4)
        self.token = "0123456789abcdef0123456789abcdef"
        self.log = directory / "hub.log"
        said = {
            "url": f"http://127.0.0.1:{self.port}{BASE}",
            "hub_port": hub_port,
            "proxy_api": f"http://127.0.0.1:{proxy_port}",
            "proxy": str(PROXY if PROXY.exists() else shutil.which("configurable-http-proxy")),
            "token": self.token,
            "directory": str(directory),
            "password": PASSWORD,
            "sockets": sockets,
            "container": CONTAINER,
            "singleuser": [sys.executable, "-m", "jupyterhub.singleuser"],
            "environment": {
                # Nothing but our extension: the others take time to load.
                "JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp",
                # Nobody's server tells when somebody did something there, unless `prompt` has it so.
                "JUPYTERHUB_ACTIVITY_INTERVAL": "0",
                "JUPYTER_CONFIG_PATH": str(directory / "config"),
                "JUPYTER_PLATFORM_DIRS": "1",
                "PATH": os.environ["PATH"],
                "PYTHONPATH": QUICK,
                "OMP_NUM_THREADS": "1",
            },
            "services": [
                {"name": "driver", "api_token": self.token},
                {
                    "name": "salus",
                    "url": f"http://127.0.0.1:{service_port}",
                    "command": [
                        sys.executable,
                        "-m",
                        "jupyter_salus.hub",
                        f"--backend=here={admin_socket}",
                        "--reconcile=1",
                    ],
                    "cwd": str(ROOT),
                    "oauth_no_confirm": True,
                    "oauth_client_allowed_scopes": ["custom:salus:read", "custom:salus:admin"],
                },
            ],
            **more,
        }
        said["roles"] = [
            {
                "name": "driver",
                "services": ["driver"],
                "scopes": ["admin:users", "admin:servers", "tokens", "access:servers", "shares", "groups"],
            },
            {"name": "salus", "services": ["salus"], "scopes": ["list:users", "read:users:name"]},
            *more.get("roles", ()),
        ]
        others = dict.fromkeys(("jupyterlab", "jupyter_lsp", "jupyter_server_terminals", "notebook_shim"), False)
        settings = directory / "config" / "jupyter_server_config.d"
        settings.mkdir(parents=True)
        (settings / "fast.json").write_text(json.dumps({"ServerApp": {"jpserver_extensions": others}}))
        (directory / "jupyterhub_config.py").write_text(CONFIG.format(said=json.dumps(said)))
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "IPYTHON", "XDG_"))
        }
        environment |= {"HOME": str(self.directory), "CONFIGPROXY_AUTH_TOKEN": self.token, "PYTHONPATH": QUICK}
        command = [*reachable(self.directory), sys.executable, "-m", "jupyterhub", "-f", "jupyterhub_config.py"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=self.directory
            )

        def answers() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            try:
                return self.api("GET", "").ok
            except requests.RequestException:
                return False

        wait_for(answers, "the hub to answer")

    def api(self, method: str, path: str, token: str | None = None, **options: Any) -> requests.Response:
        """The hub's REST interface."""
        return requests.request(
            method,
            f"http://127.0.0.1:{self.port}{BASE}hub/api/{path}",
            headers={"Authorization": f"token {token or self.token}"},
            timeout=PATIENCE_S,
            **options,
        )

    def add(self, user: str) -> str:
        """Make a user known to the hub; a token of theirs."""
        assert self.api("POST", f"users/{user}").status_code in (201, 409)
        answer = self.api("POST", f"users/{user}/tokens", json={"note": "test"})
        assert answer.ok, answer.text
        return str(answer.json()["token"])

    def spawn(self, user: str, name: str = "") -> None:
        """Have a server started; `server` waits for it."""
        answer = self.api("POST", f"users/{user}/servers/{name}" if name else f"users/{user}/server", json={})
        assert answer.status_code in (201, 202), answer.text

    def server(self, user: str, token: str, name: str = "") -> UserServer:
        """A user's server, once it is ready."""

        def ready() -> bool:
            servers = self.api("GET", f"users/{user}").json()["servers"]
            return bool(servers.get(name, {}).get("ready"))

        wait_for(ready, f"the server of {user}; the hub's log: {self.log.read_text()[-3000:]}")
        return UserServer(self, user, token, name)

    def stop_server(self, user: str, name: str = "") -> None:
        """As its page's button does."""
        path = f"users/{user}/servers/{name}" if name else f"users/{user}/server"
        assert self.api("DELETE", path).status_code in (202, 204)

    def browser(self, user: str) -> requests.Session:
        """A person's browser after signing in."""
        session = requests.Session()
        login = f"http://127.0.0.1:{self.port}{BASE}hub/login"
        session.get(login, timeout=PATIENCE_S)
        token = next(one.value for one in session.cookies if one.name == "_xsrf")
        fields = {"username": user, "password": PASSWORD, "_xsrf": token}
        answer = session.post(login, data=fields, allow_redirects=False, timeout=PATIENCE_S)
        assert answer.status_code == 302, answer.text
        return session

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{BASE}{path}"

    def await_activity(self, user: str) -> None:
        """Until the hub hears that somebody did something at a user's server since it heard of it last."""

        def heard() -> str:
            return str(self.api("GET", f"users/{user}").json()["servers"][""]["last_activity"])

        before = heard()
        wait_for(lambda: heard() > before, f"activity at the server of {user}")

    def backdate(self, user: str) -> None:
        """Have a user's server be idle for a day, for a hub that is stopped."""
        with closing(sqlite3.connect(self.directory / "hub.sqlite")) as db, db:
            who = "(SELECT id FROM users WHERE name = ?)"
            db.execute(f"UPDATE spawners SET last_activity = datetime('now', '-1 day') WHERE user_id = {who}", [user])

    def cull(self, timeout_s: int) -> None:
        """One look of JupyterHub's idle culler."""
        asyncio.run(cull_idle(self.url("hub/api"), self.token, timeout_s, logging.getLogger("culler")))

    def stop(self) -> None:
        """End the hub alone: servers and proxy go on."""
        end(self.process)

    def close(self) -> None:
        end(self.process)
        pid_file = self.directory / "proxy.pid"
        if pid_file.exists():
            pid = int(pid_file.read_text().splitlines()[0])
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                return  # it ended with the hub
            wait_for(lambda: not alive(pid), "the proxy to end")
