"""The Littlest JupyterHub: `/opt/tljh/config/jupyterhub_config.d/jupyter_salus.py`.

Its hub and its users have environments of their own: install jupyter_salus in both (`sudo -E pip install jupyter_salus` for the
users', `sudo /opt/tljh/hub/bin/python3 -m pip install 'jupyter_salus[hub]'` for the hub's). Servers are systemd units of
users whose accounts begin with `jupyter-`; those are the names in the limits file.
"""

from jupyter_salus.hub import SpawnHook


def account_of(name: str) -> str:
    """As TLJH calls the account of a hub user; it shortens long names."""
    from tljh.normalize import generate_system_username

    return generate_system_username(f"jupyter-{name}")


c = get_config()  # noqa: F821
c.SystemdSpawner.isolate_devices = False
c.Spawner.args = ["--ServerApp.kernel_manager_class=jupyter_salus.Manager"]
c.Spawner.pre_spawn_hook = SpawnHook(account_of=account_of)
