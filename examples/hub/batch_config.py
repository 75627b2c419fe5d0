"""JupyterHub with batchspawner and Slurm: each user's server is a job, as that Unix user, on a compute node.

Each node has a backend of its own, the node's system backend; jobs find it at `/run/jupyter-salus` by their uid. The hub
reaches none of them, so shares and limits come from each node's file, by user and by Unix group. Jobs that share a GPU
must not be given it by the scheduler for themselves alone: ask for a share of a node, as `req_options` does here.
"""

import batchspawner  # noqa: F401  (registers the address where jobs tell their port)

c = get_config()  # noqa: F821
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.req_partition = "gpu-shared"
c.SlurmSpawner.req_runtime = "8:00:00"
c.SlurmSpawner.req_memory = "16gb"
c.SlurmSpawner.req_nprocs = "4"
# A partition whose nodes' GPUs aren't constrained per job (no `ConstrainDevices` for it), or GPUs shared by `shard`.
c.SlurmSpawner.req_options = "--oversubscribe"
c.BatchSpawnerBase.exec_prefix = "sudo -E -u {username}"
c.Spawner.args = ["--ServerApp.kernel_manager_class=jupyter_salus.Manager"]
c.Spawner.environment = {"JUPYTER_SALUS_SOCKET": "/run/jupyter-salus/backend.sock"}
