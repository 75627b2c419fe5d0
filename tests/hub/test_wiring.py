"""The configuration files of the how-to pages: each is loaded by the hub's own loader, its spawner made, its hook called."""

from __future__ import annotations

import logging
import os
import socket
import stat
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader
from traitlets.utils.importstring import import_item

from jupyter_salus.backend.daemon.app import BackendApp
from jupyter_salus.backend.daemon.limits import read
from jupyter_salus.hub import NodeMount, SpawnHook
from jupyter_salus.hub.hosts import Hosts
from jupyter_salus.protocol.doors import directory_of
from tests.hub.conftest import Shared

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "hub"
SPAWNERS = {
    "local": "jupyterhub.spawner.LocalProcessSpawner",
    "sudo": "sudospawner.SudoSpawner",
    "systemd": "systemdspawner.SystemdSpawner",
    "docker": "dockerspawner.DockerSpawner",
    "batch": "batchspawner.SlurmSpawner",
    "kubernetes": "kubespawner.KubeSpawner",
    # It sets no spawner: TLJH's own configuration has done so.
    "tljh": "systemdspawner.SystemdSpawner",
}


#: KubeSpawner looks for a cluster when it is made; it is asked nothing.
NO_CLUSTER = """
current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: none, user: {}}]
"""


def free_row(count: int) -> int:
    """The first of so many ports in a row that nobody listened at a moment ago."""
    while True:
        with ExitStack() as probes:
            first = probes.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            try:
                for number in range(first + 1, first + count):
                    probes.enter_context(socket.create_server(("127.0.0.1", number)))
            except (OSError, OverflowError):
                continue  # somebody has one of them, or there are no more
            return int(first)


def loaded(name: str) -> Config:
    return PyFileConfigLoader(f"{name}_config.py", path=str(EXAMPLES)).load_config()


def spawner_of(name: str, config: Config) -> Any:
    """The spawner that the configuration makes. Its own checks of every trait have passed then."""
    cls = import_item(SPAWNERS[name])
    user = SimpleNamespace(
        name="ada", groups=[SimpleNamespace(name="course")], id=1, url="/user/ada/", escaped_name="ada"
    )
    hub = SimpleNamespace(
        public_host="", base_url="/hub/", api_url="http://127.0.0.1:8081/hub/api", url="/hub/", port=8081
    )
    # Else it would ask a cluster for its pods.
    more = {"_mock": True} if name == "kubernetes" else {}
    return cls(config=config, user=user, hub=hub, log=logging.getLogger("spawner"), **more)


@pytest.mark.parametrize("name", SPAWNERS)
async def test_each_pages_file_makes_its_spawner_and_uses_our_manager(
    name: str, caplog, monkeypatch, short_tmp: Path
) -> None:
    (short_tmp / "kube").write_text(NO_CLUSTER)
    monkeypatch.setenv("KUBECONFIG", str(short_tmp / "kube"))  # read when the spawner's module is loaded
    pytest.importorskip(SPAWNERS[name].split(".")[0], reason=f"{SPAWNERS[name]} isn't installed")
    config = loaded(name)
    assert config.JupyterHub.get("spawner_class", SPAWNERS[name]) == SPAWNERS[name]
    spawner = spawner_of(name, config)
    assert "--ServerApp.kernel_manager_class=jupyter_salus.Manager" in spawner.args
    known = {trait for cls in type(spawner).__mro__ if hasattr(cls, "class_traits") for trait in cls.class_traits()}
    for section in {cls.__name__ for cls in type(spawner).__mro__} & config.keys():
        assert set(config[section]) <= known, section
    assert "not recognized" not in caplog.text


@pytest.fixture
def demonstration(monkeypatch, short_tmp: Path) -> Path:
    """Where the demonstration hub keeps its files. A stand-in for its proxy is there: nothing is started."""
    monkeypatch.setenv("SALUS_HUB_PORT", str(free_row(4)))
    monkeypatch.setenv("SALUS_HUB_DIR", str(short_tmp / "hub"))
    monkeypatch.setenv("SALUS_HUB_PROXY", "/bin/true")
    return short_tmp / "hub"


def test_the_demonstration_starts_all_that_it_needs_and_says_what_to_do(demonstration: Path, capsys) -> None:
    config = loaded("jupyterhub")
    port = int(os.environ["SALUS_HUB_PORT"])
    assert stat.S_IMODE(demonstration.stat().st_mode) == 0o700
    assert config.JupyterHub.bind_url == f"http://127.0.0.1:{port}"
    for service in config.JupyterHub.services:
        assert [sys.executable, "-m"] == [one for one in service["command"] if one in (sys.executable, "-m")]
    welcome = config.JupyterHub.logging_config["handlers"]["welcome"]["()"]()
    welcome.handle(logging.makeLogRecord({"msg": "JupyterHub is now running at %s", "args": ("http://…",)}))
    told = capsys.readouterr().out
    assert f"http://127.0.0.1:{port}/services/salus/" in told
    assert "sign in as ada" in told


def test_the_demonstration_says_in_one_line_why_it_cannot_start(demonstration: Path, monkeypatch) -> None:
    def why() -> str:
        with pytest.raises(SystemExit) as ended:
            loaded("jupyterhub")
        return str(ended.value)

    port = int(os.environ["SALUS_HUB_PORT"])
    with socket.create_server(("127.0.0.1", port + 2)):
        assert why().startswith(f"cannot start the hub: port {port + 2}: Address already in use; SALUS_HUB_PORT=PORT")
    demonstration.chmod(0o755)
    assert why().startswith(f"cannot start the hub: {demonstration} must be yours, and closed to others")
    demonstration.chmod(0o700)
    for wrong in ("x", "0", "65535"):
        monkeypatch.setenv("SALUS_HUB_PORT", wrong)
        assert why() == f"cannot start the hub: SALUS_HUB_PORT={wrong} is no port"
    monkeypatch.setenv("SALUS_HUB_PROXY", "/none")
    assert why().startswith("cannot start the hub: configurable-http-proxy isn't there; `make hub` gets it")


def test_the_kubernetes_hook_mounts_the_users_own_directory_alone() -> None:
    spawner = SimpleNamespace(
        user=SimpleNamespace(name="ada@example.org"),
        volumes=[{"name": "home"}],
        volume_mounts=[],
        environment={"A": "b"},
    )
    for _ in range(2):  # a server that is started again has it once
        NodeMount()(spawner)
    path = "/run/jupyter-salus/users/ada_40example_2eorg"
    assert spawner.volumes == [
        {"name": "home"},
        {"name": "jupyter-salus", "hostPath": {"path": path, "type": "DirectoryOrCreate"}},
    ]
    assert spawner.volume_mounts == [{"name": "jupyter-salus", "mountPath": "/run/jupyter-salus", "readOnly": True}]
    assert spawner.environment == {"A": "b", "JUPYTER_SALUS_SOCKET": "/run/jupyter-salus/backend.sock"}


async def test_the_docker_hook_has_a_socket_made_and_mounts_its_directory(shared: Shared) -> None:
    spawner = spawner_of("docker", loaded("docker"))
    spawner.volumes = {"home": "/home"}
    await SpawnHook(socket=shared.path, containers=True, limits_of=lambda user: {"weight": 3})(spawner)
    directory = directory_of(shared.path, "ada")
    # What Docker is given.
    assert spawner.volume_binds == {
        "home": {"bind": "/home", "mode": "rw"},
        directory: {"bind": "/run/jupyter-salus", "mode": "ro"},
    }
    assert spawner.get_env()["JUPYTER_SALUS_SOCKET"] == "/run/jupyter-salus/backend.sock"
    shared.contained(f"{directory}/backend.sock", 23456, session="d1").hear("welcome")
    with shared.client(admin=True) as admin:
        row = next(row for row in admin.ask("users")["users"] if row["name"] == "ada")
    assert (row["groups"], row["limits"]["weight"], row["limits"]["max_priority"]) == (["course"], 3, "normal")


async def test_the_pod_that_kubernetes_is_given_has_the_users_directory_and_our_manager(
    monkeypatch, short_tmp: Path
) -> None:
    (short_tmp / "kube").write_text(NO_CLUSTER)
    monkeypatch.setenv("KUBECONFIG", str(short_tmp / "kube"))
    pytest.importorskip("kubespawner", reason="kubespawner isn't installed")
    spawner = spawner_of("kubernetes", loaded("kubernetes"))
    spawner.pre_spawn_hook(spawner)
    client = pytest.importorskip("kubernetes_asyncio.client")
    async with client.ApiClient() as cluster:
        pod = cluster.sanitize_for_serialization(await spawner.get_pod_manifest())["spec"]
    (container,) = pod["containers"]
    directory = {"path": "/run/jupyter-salus/users/ada", "type": "DirectoryOrCreate"}
    assert pod["volumes"] == [{"name": "jupyter-salus", "hostPath": directory}]
    assert container["volumeMounts"] == [{"name": "jupyter-salus", "mountPath": "/run/jupyter-salus", "readOnly": True}]
    assert container["args"] == ["jupyterhub-singleuser", "--ServerApp.kernel_manager_class=jupyter_salus.Manager"]
    told = {one["name"]: one.get("value") for one in container["env"]}
    assert told["JUPYTER_SALUS_SOCKET"] == "/run/jupyter-salus/backend.sock"
    assert (pod["runtimeClassName"], told["NVIDIA_VISIBLE_DEVICES"]) == ("nvidia", "all")


async def test_the_job_that_slurm_is_given_shares_its_node_and_has_our_manager() -> None:
    pytest.importorskip("batchspawner", reason="batchspawner isn't installed")
    spawner = spawner_of("batch", loaded("batch"))
    spawner.user.name = "root"  # whose home it looks for
    command = " ".join([*spawner.cmd, *spawner.get_args()])
    script = await spawner._get_batch_script(**spawner.get_req_subvars(), cmd=command)
    assert "#SBATCH --partition=gpu-shared\n" in script
    assert "#SBATCH --oversubscribe\n" in script
    assert "JUPYTER_SALUS_SOCKET" in next(line for line in script.splitlines() if "--export=" in line)
    assert "jupyterhub-singleuser --ServerApp.kernel_manager_class=jupyter_salus.Manager" in script


async def test_users_whose_accounts_are_called_otherwise_are_known_until_the_hub_removes_them(shared: Shared) -> None:
    user = SimpleNamespace(name="ada", groups=[SimpleNamespace(name="course")])
    spawner = SimpleNamespace(user=user, environment={}, log=logging.getLogger("spawner"))
    await SpawnHook(socket=shared.path, account_of=lambda name: f"jupyter-{name}")(spawner)
    hosts = Hosts({"here": shared.admin_path})

    async def known() -> list[tuple[str, str]]:
        (told,) = await hosts.told()
        return [(row["name"], row["groups"][0]) for row in told.users if row["known"]]

    await hosts.forget({"ada"})
    assert await known() == [("jupyter-ada", "course")]
    await hosts.forget({"grace"})
    assert await known() == []
    await hosts.close()


async def test_a_backend_that_is_not_there_keeps_no_server_from_starting(short_tmp: Path, caplog) -> None:
    spawner = SimpleNamespace(
        user=SimpleNamespace(name="ada", groups=[]), environment={}, log=logging.getLogger("spawner")
    )
    await SpawnHook(socket=str(short_tmp / "b.sock"))(spawner)
    assert "the kernels of ada start as plain ones" in caplog.text


def test_the_daemonset_shares_the_hosts_processes_and_starts_a_backend_with_options_that_there_are() -> None:
    limits, daemonset = yaml.safe_load_all((EXAMPLES / "daemonset.yaml").read_text("utf-8"))
    pod = daemonset["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["hostPID"] is True
    assert daemonset["spec"]["selector"]["matchLabels"] == daemonset["spec"]["template"]["metadata"]["labels"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert set(mounts) == {one["name"] for one in pod["volumes"]}
    app = BackendApp()
    app.parse_command_line(container["args"])
    assert (app.socket, app.shared, app.device) == (f"{mounts['run']}/backend.sock", True, "cuda")
    assert app.limits == f"{mounts['limits']}/limits.toml"
    assert "limits.toml" in limits["data"]
    BackendApp.clear_instance()


async def test_the_manifests_have_no_field_that_kubernetes_does_not_know() -> None:
    """Each is made an object of the cluster's own model, and is the same when it is written again: nothing fell out."""
    client = pytest.importorskip("kubernetes_asyncio.client", reason="kubespawner isn't installed")
    for manifest in yaml.safe_load_all((EXAMPLES / "daemonset.yaml").read_text("utf-8")):
        async with client.ApiClient() as cluster:
            made = cluster._ApiClient__deserialize(manifest, getattr(client, f"V1{manifest['kind']}"))
            assert cluster.sanitize_for_serialization(made) == manifest


def test_the_limits_files_of_the_pages_can_be_read(short_tmp: Path) -> None:
    assert read(EXAMPLES / "limits.toml").of("ada", ["course"]).weight == 2
    limits, _ = yaml.safe_load_all((EXAMPLES / "daemonset.yaml").read_text("utf-8"))
    file = short_tmp / "limits.toml"
    file.write_text(limits["data"]["limits.toml"])
    assert read(file).of("ada", []).max_sessions == 10


pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can mount as a container does")
