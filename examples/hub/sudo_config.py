"""JupyterHub with SudoSpawner: the hub runs without root, and starts each user's server through sudo.

The hub's account must reach the backend's admin socket: put it into the group that the backend is given by
`--admin-group=jupyterhub`.
"""

from jupyter_salus.hub import SpawnHook

c = get_config()  # noqa: F821
c.JupyterHub.spawner_class = "sudospawner.SudoSpawner"
c.Spawner.args = ["--ServerApp.kernel_manager_class=jupyter_salus.Manager"]
c.Spawner.pre_spawn_hook = SpawnHook()
