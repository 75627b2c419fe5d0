"""`make hub`: two users and an admin on this machine, whoever runs it, with one backend and the admins' page.

All servers run as the Unix user who started the hub, so this shows what people see, and protects nobody from anybody: a
real hub starts each user's server as a user of their own, or in a container (docs: how-to, JupyterHub).

`SALUS_HUB_PORT` is the first of four ports in a row, `SALUS_HUB_DIR` where all is kept, `SALUS_HUB_PROXY` the proxy's command.
"""

import logging
import os
import shutil
import socket
import sys
from pathlib import Path

from jupyter_salus.hub import ADMIN, SpawnHook, custom_scopes

PASSWORD = "salus"
here = Path(__file__).parent
state = Path(os.environ.get("SALUS_HUB_DIR", f"/tmp/jupyter-salus-hub-{os.getuid()}"))
backend = state / "backend.sock"


def cannot(why: str) -> None:
    """End here, with one line."""
    sys.exit(f"cannot start the hub: {why}")


def checked_port() -> int:
    """The first of the four ports, all of which are free."""
    said = os.environ.get("SALUS_HUB_PORT", "8000")
    if not said.isdigit() or not 0 < int(said) < 65533:
        cannot(f"SALUS_HUB_PORT={said} is no port")
    # A hub that was killed leaves its proxy behind; the next one takes its place.
    for number in range(int(said), int(said) + 4) if not (state / "proxy.pid").exists() else ():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", number))
            except OSError as error:
                cannot(f"port {number}: {error.strerror}; SALUS_HUB_PORT=PORT has it use four others, from that one on")
    return int(said)


proxy = shutil.which(os.environ.get("SALUS_HUB_PROXY") or "configurable-http-proxy")
if proxy is None:
    cannot(
        "configurable-http-proxy isn't there; `make hub` gets it by npm, as `npm install -g configurable-http-proxy` does"
    )
state.mkdir(mode=0o700, parents=True, exist_ok=True)
if state.stat().st_uid != os.getuid() or state.stat().st_mode & 0o077:
    cannot(f"{state} must be yours, and closed to others; SALUS_HUB_DIR=DIRECTORY names another one")
port = checked_port()
url = f"http://127.0.0.1:{port}"


class Welcome(logging.Handler):
    """Says what to do next, once there is something to do it with."""

    def emit(self, record: logging.LogRecord) -> None:
        if "JupyterHub is now running" in record.getMessage():
            print(
                f"\n  {url}/ is ready: sign in as ada, and in a private window as grace, password {PASSWORD};\n"
                f"  both have the examples: run numpy_digits.ipynb as both.\n"
                f"  {url}/services/salus/ is the page for admins: user admin, the same password.\n"
                f"  Limits: {here}/limits.toml, read again when it changes. Files: {state}. Ctrl-C ends all of it.\n",
                flush=True,
            )


c = get_config()  # noqa: F821  (traitlets offers it)
c.JupyterHub.log_level = "WARN"
c.JupyterHub.logging_config = {
    "handlers": {"welcome": {"()": Welcome}},
    "loggers": {"JupyterHub": {"level": "DEBUG", "handlers": ["console", "welcome"]}},
}
c.JupyterHub.bind_url = url
c.JupyterHub.hub_port = port + 1
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{port + 2}"
c.ConfigurableHTTPProxy.command = [proxy]
c.ConfigurableHTTPProxy.log_level = "error"
c.ConfigurableHTTPProxy.pid_file = str(state / "proxy.pid")
c.JupyterHub.db_url = f"sqlite:///{state}/hub.sqlite"
c.JupyterHub.cookie_secret_file = str(state / "cookie_secret")

c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = PASSWORD
c.Authenticator.allowed_users = {"ada", "grace", "admin"}
c.Authenticator.admin_users = {"admin"}

c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = f"{state}/home/{{username}}"
c.Spawner.args = ["--ServerApp.kernel_manager_class=jupyter_salus.Manager", "--log-level=WARN"]
if os.getuid() == 0:
    c.Spawner.args.append("--allow-root")
c.Spawner.environment = {"JUPYTER_PLATFORM_DIRS": "1"}
c.Spawner.default_url = "/lab"

tell = SpawnHook(socket=str(backend), by_path=True)


async def prepare(spawner) -> None:
    """The backend learns of the user, whose home gets the examples; what is there already stays."""
    home = state / "home" / spawner.user.name
    home.mkdir(parents=True, exist_ok=True)
    for example in here.parent.glob("*.ipynb"):
        if not (home / example.name).exists():
            shutil.copy(example, home)
    await tell(spawner)


c.Spawner.pre_spawn_hook = prepare

c.JupyterHub.load_groups = {"course": {"users": ["ada", "grace"]}}
c.JupyterHub.custom_scopes = custom_scopes
c.JupyterHub.load_roles = [
    {"name": "salus-admin", "users": ["admin"], "scopes": [ADMIN, "access:services!service=salus"]},
    {"name": "salus-service", "services": ["salus"], "scopes": ["list:users", "read:users:name"]},
]
# What the hub starts ends with it also where it is killed, or the next one would find its ports taken.
ends_with_hub = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
c.JupyterHub.services = [
    {
        "name": "salus-backend",
        "command": [
            *(*ends_with_hub, sys.executable, "-m", "jupyter_salus.backend", f"--socket={backend}"),
            *(f"--limits={here}/limits.toml", "--BackendApp.tell_user_names=True"),
        ],
        "environment": {"JUPYTER_SALUS_STATE_DIR": str(state / "salus"), "HOME": str(state)},
    },
    {
        "name": "salus",
        "url": f"http://127.0.0.1:{port + 3}",
        "command": [*ends_with_hub, sys.executable, "-m", "jupyter_salus.hub", f"--backend=here={state}/backend.adm"],
        "oauth_no_confirm": True,
        "oauth_client_allowed_scopes": [ADMIN],
    },
]
