"""JupyterHub with DockerSpawner: each user's server in a container of this host, all of which have all GPUs.

The hook has the backend make a socket of the user's own, and mounts its directory at `/run/jupyter-salus` of that user's
containers alone: the socket says whose the container is, whatever uid it runs as. The hub runs on the host, as root or in
the backend's admin group.
"""

import docker

from jupyter_salus.hub import SpawnHook

c = get_config()  # noqa: F821
c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
c.JupyterHub.hub_ip = "0.0.0.0"
c.DockerSpawner.image = "our/notebook-with-jupyter-salus:1"
c.DockerSpawner.remove = True
c.DockerSpawner.extra_host_config = {
    "device_requests": [docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])],
}
c.Spawner.args = ["--ServerApp.kernel_manager_class=jupyter_salus.Manager"]
c.Spawner.pre_spawn_hook = SpawnHook(containers=True)
