"""JupyterHub with LocalProcessSpawner: each user's server runs as that Unix user on the hub's host.

The backend is the system's (`jupyter salus backend --print-unit --unit-root=/`). It knows users by their uids; the hook adds
the groups that the hub alone knows.
"""

from jupyter_salus.hub import ADMIN, READ, SpawnHook, custom_scopes

c = get_config()  # noqa: F821  (traitlets offers it)
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.args = ["--ServerApp.kernel_manager_class=jupyter_salus.Manager"]
c.Spawner.pre_spawn_hook = SpawnHook()

c.JupyterHub.custom_scopes = custom_scopes
c.JupyterHub.load_roles = [
    {"name": "salus-admin", "groups": ["gpu-admins"], "scopes": [ADMIN, "access:services!service=salus"]},
    {"name": "salus-service", "services": ["salus"], "scopes": ["list:users", "read:users:name"]},
]
c.JupyterHub.load_groups = {"gpu-admins": {"users": []}}
c.JupyterHub.services = [
    {
        "name": "salus",
        "url": "http://127.0.0.1:8100",
        "command": ["python3", "-m", "jupyter_salus.hub"],
        "oauth_no_confirm": True,
        "oauth_client_allowed_scopes": [READ, ADMIN],
    }
]
