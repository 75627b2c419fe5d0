"""Spawn hooks: what a hub knows of a user that the backend can't see, told before the user's server starts.

`SpawnHook` tells the user's groups, and limits where `limits_of` gives some; for containers it has a socket of the user's
own made and mounts its directory. `NodeMount` is for clusters whose hub reaches no node's backend: it mounts the user's
directory of whatever node the pod lands on, and the backend there serves a socket in it.

A backend that isn't there doesn't keep a server from starting: its kernels are plain ones, and the hub's log says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import SalusError
from ..protocol.address import SOCKET_NAME, SYSTEM_DIRECTORY, admin_path
from ..protocol.doors import MOUNTED_AT, directory_of
from ..protocol.messages import Act
from ..protocol.peer import Peer

#: What a spawn waits for the backend at most, in seconds.
PATIENCE_S = 5.0
_SOCKET = f"{SYSTEM_DIRECTORY}/{SOCKET_NAME}"


class SpawnHook:
    """For `c.Spawner.pre_spawn_hook`. The hub must reach the backend's admin socket: it runs as root or in its group.

    `socket`: the backend's user socket, if not the system's. `containers`: servers run in containers of this host, each
    user's with a socket of their own; needs a spawner with `volumes` as DockerSpawner has them. `by_path`: servers run as one
    Unix user, so each is told the path of its user's socket; the users can reach one another's then, if they mean to.
    `account_of(name)`: the Unix account of a hub user, where it isn't called as the user is. `limits_of(user)`: further
    limits by field, as in the limits file; `user` is the hub's, with `name` and `groups`.
    """

    def __init__(
        self,
        socket: str = _SOCKET,
        containers: bool = False,
        by_path: bool = False,
        account_of: Callable[[str], str] | None = None,
        limits_of: Callable[[Any], Mapping[str, Any]] | None = None,
    ) -> None:
        self.socket = socket
        self.containers = containers
        self.by_path = by_path
        self.account_of = account_of
        self.limits_of = limits_of

    async def __call__(self, spawner: Any) -> None:
        """Called by the hub before each spawn."""
        user = spawner.user
        account = self.account_of(user.name) if self.account_of else user.name
        said: dict[str, Any] = {"groups": sorted(group.name for group in user.groups)}
        if self.limits_of is not None:
            said["limits"] = dict(self.limits_of(user))
        if self.containers or self.by_path:
            said["socket"] = True
        if not self.containers:
            own = os.path.join(directory_of(self.socket, account), SOCKET_NAME)
            spawner.environment = {
                **spawner.environment,
                "JUPYTER_SALUS_SOCKET": own if self.by_path else self.socket,
            }
        if account != user.name:
            said["hub_user"] = user.name
        try:
            told = await self._tell(account, said)
        except SalusError as error:
            spawner.log.warning("Salus: %s; the kernels of %s start as plain ones until it is there", error, user.name)
            return
        if self.containers:
            _mount(spawner, told["directory"])

    async def _tell(self, name: str, said: Mapping[str, Any]) -> dict[str, Any]:
        peer = await Peer.connect(admin_path(self.socket), timeout=PATIENCE_S, role="client")
        try:
            return await peer.request(Act, verb="user", target=name, value=json.dumps(said))
        finally:
            await peer.close()


class NodeMount:
    """For `c.KubeSpawner.pre_spawn_hook`: mounts the user's own directory of the node into the user's pod.

    The node's backend (a DaemonSet with the host's pid namespace) serves a socket in it within a second. Needs a spawner
    with `volumes` and `volume_mounts` as KubeSpawner has them, both as lists.
    """

    def __init__(self, socket: str = _SOCKET) -> None:
        self.socket = socket

    def __call__(self, spawner: Any) -> None:
        """Called by the hub before each spawn."""
        directory = directory_of(self.socket, spawner.user.name)
        volume = {"name": "jupyter-salus", "hostPath": {"path": directory, "type": "DirectoryOrCreate"}}
        mount = {"name": "jupyter-salus", "mountPath": MOUNTED_AT, "readOnly": True}
        spawner.volumes = [*_others(spawner.volumes), volume]
        spawner.volume_mounts = [*_others(spawner.volume_mounts), mount]
        spawner.environment = {**spawner.environment, "JUPYTER_SALUS_SOCKET": os.path.join(MOUNTED_AT, SOCKET_NAME)}


def _mount(spawner: Any, directory: str) -> None:
    spawner.volumes = {**spawner.volumes, directory: {"bind": MOUNTED_AT, "mode": "ro"}}
    spawner.environment = {**spawner.environment, "JUPYTER_SALUS_SOCKET": os.path.join(MOUNTED_AT, SOCKET_NAME)}


def _others(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of a server that is started again have ours already."""
    return [one for one in entries if one.get("name") != "jupyter-salus"]
