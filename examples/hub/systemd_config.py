"""JupyterHub with SystemdSpawner: each user's server is a unit of its own, as that Unix user.

The unit must see the backend's socket and the GPU's devices: `isolate_devices` hides `/dev/nvidia*`; a private `/tmp` is no
harm, since the system's sockets are in `/run`.
"""

from jupyter_salus.hub import SpawnHook

c = get_config()  # noqa: F821
c.JupyterHub.spawner_class = "systemdspawner.SystemdSpawner"
c.SystemdSpawner.isolate_devices = False
c.SystemdSpawner.isolate_tmp = True
c.SystemdSpawner.disable_user_sudo = True
c.SystemdSpawner.unit_extra_properties = {
    # A server is there after the sockets are; it needs no backend to start.
    "After": "jupyter-salus.socket",
    "LimitNOFILE": "16384",
}
c.Spawner.args = ["--ServerApp.kernel_manager_class=jupyter_salus.Manager"]
c.Spawner.pre_spawn_hook = SpawnHook()
