"""JupyterHub with KubeSpawner: pods share their node's GPUs through the node's backend, a DaemonSet (`daemonset.yaml`).

Only the backend asks the cluster for `nvidia.com/gpu`; users' pods see the devices by the runtime class and the variable
below. The hook mounts the user's own directory of the node; the backend there serves a socket in it within a second. The
hub reaches no node's backend, so shares and limits come from the DaemonSet's ConfigMap, by user name.
"""

from jupyter_salus.hub import NodeMount

c = get_config()  # noqa: F821
c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.KubeSpawner.image = "our/notebook-with-jupyter-salus:1"
# KubeSpawner passes arguments on to a command that it knows, and not to an image's own.
c.KubeSpawner.cmd = ["jupyterhub-singleuser"]
c.KubeSpawner.args = ["--ServerApp.kernel_manager_class=jupyter_salus.Manager"]
c.KubeSpawner.node_selector = {"salus.jupyter.org/backend": "true"}
c.KubeSpawner.environment = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
c.KubeSpawner.extra_pod_config = {"runtimeClassName": "nvidia"}
c.KubeSpawner.pre_spawn_hook = NodeMount()
