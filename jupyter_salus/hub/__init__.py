"""For JupyterHub: a spawn hook that tells the backend who its users are, and a service page for admins.

In a hub's configuration file:

    from jupyter_salus.hub import SpawnHook, custom_scopes
    c.Spawner.pre_spawn_hook = SpawnHook()
    c.JupyterHub.custom_scopes = custom_scopes
"""

from __future__ import annotations

from .hook import NodeMount, SpawnHook
from .scopes import ADMIN, READ, custom_scopes

__all__ = ["ADMIN", "READ", "NodeMount", "SpawnHook", "custom_scopes"]
