"""`make hub`: two users and an admin on this machine, whoever runs it, with one backend and the admins' page.

All servers run as the Unix user who started the hub, so this shows what people see, and protects nobody from anybody: a
real hub starts each user's server as a user of their own, or in a container (docs: how-to, JupyterHub).
"""

import os
import sys
from pathlib import Path

from jupyter_salus.hub import ADMIN, SpawnHook, custom_scopes

here = Path(__file__).parent
state = Path(os.environ.get("SALUS_HUB_DIR", f"/tmp/jupyter-salus-hub-{os.getuid()}"))
state.mkdir(mode=0o700, exist_ok=True)
socket = state / "backend.sock"
service_port = int(os.environ.get("SALUS_HUB_PORT", "8000")) + 3

c = get_config()  # noqa: F821  (traitlets offers it)
c.JupyterHub.bind_url = f"http://127.0.0.1:{service_port - 3}"
c.JupyterHub.hub_port = service_port - 2
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{service_port - 1}"
if "SALUS_HUB_PROXY" in os.environ:
    c.ConfigurableHTTPProxy.command = [os.environ["SALUS_HUB_PROXY"]]
c.ConfigurableHTTPProxy.pid_file = str(state / "proxy.pid")
c.JupyterHub.db_url = f"sqlite:///{state}/hub.sqlite"
c.JupyterHub.cookie_secret_file = str(state / "cookie_secret")

c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = "salus"
c.Authenticator.allowed_users = {"ada", "grace", "admin"}
c.Authenticator.admin_users = {"admin"}

c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = f"{state}/home/{{username}}"
c.Spawner.args = ["--ServerApp.kernel_manager_class=jupyter_salus.Manager"]
if os.getuid() == 0:
    c.Spawner.args.append("--allow-root")
c.Spawner.environment = {"JUPYTER_PLATFORM_DIRS": "1"}
c.Spawner.default_url = "/lab"
c.Spawner.pre_spawn_hook = SpawnHook(socket=str(socket), by_path=True)

c.JupyterHub.load_groups = {"course": {"users": ["ada", "grace"]}}
c.JupyterHub.custom_scopes = custom_scopes
c.JupyterHub.load_roles = [
    {"name": "salus-admin", "users": ["admin"], "scopes": [ADMIN, "access:services!service=salus"]},
    {"name": "salus-service", "services": ["salus"], "scopes": ["list:users", "read:users:name"]},
]
c.JupyterHub.services = [
    {
        "name": "salus-backend",
        "command": [
            *(sys.executable, "-m", "jupyter_salus.backend", f"--socket={socket}"),
            *(f"--limits={here}/limits.toml", "--BackendApp.tell_user_names=True"),
        ],
        "environment": {"JUPYTER_SALUS_STATE_DIR": str(state / "salus"), "HOME": str(state)},
    },
    {
        "name": "salus",
        "url": f"http://127.0.0.1:{service_port}",
        "command": [sys.executable, "-m", "jupyter_salus.hub", f"--backend=here={state}/backend.adm"],
        "oauth_no_confirm": True,
        "oauth_client_allowed_scopes": [ADMIN],
    },
]
