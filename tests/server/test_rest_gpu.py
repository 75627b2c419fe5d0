"""REST on a machine with GPUs: a real server, a real backend, kernels whose memory moves out and back on request."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_salus.server.routes import BASE
from tests.gpu.conftest import built, machines
from tests.gpu.machine import MIB, Machine
from tests.manager.kernelspecs import kernelspec
from tests.manager.running import JupyterServer, Talk, environment, wait_for
from tests.server.test_openapi import validator

__all__ = ["built", "machines"]

#: Two tensors, and what of them must be the same ever after.
HOLDS = "import tinyframe as t\nx = t.Tensor(20, 5).mix(3)\nprint(x.digest(), x.address)"
LOOKS = "print(x.digest(), x.address)"


@pytest.fixture(scope="module")
def machine(machines: Callable[..., Machine]) -> Machine:
    """Two GPUs of 96 MiB."""
    made = machines(capacity_mib=96, devices=2)
    made.backend()
    return made


@pytest.fixture(scope="module")
def gpu_server(machine: Machine) -> Iterator[JupyterServer]:
    directory = Path(tempfile.mkdtemp(prefix="js", dir="/tmp"))
    argv = ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernelspec(directory / "data", "plain", argv, env={"JUPYTER_SALUS_GUARD": "off"})
    kernelspec(directory / "data", "chosen", argv, env={"CUDA_VISIBLE_DEVICES": "1"})
    variables: dict[str, str | None] = {
        **{name: value for name, value in machine.environment.items() if os.environ.get(name) != value},
        "JUPYTER_SALUS_SOCKET": machine.socket,
        "JUPYTER_PATH": str(directory / "data"),
    }
    made = JupyterServer(directory, variables=variables).wait()
    yield made
    made.stop()
    shutil.rmtree(directory, ignore_errors=True)


def api(server: JupyterServer, method: str, path: str, status: int = 200) -> Any:
    """The JSON of an answer of this status."""
    answer = server.request(method, f"{BASE}{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


def until(server: JupyterServer, kernel: str, **fields: Any) -> dict[str, Any]:
    """The row of a session once it has these values."""

    def there() -> dict[str, Any] | None:
        answer = server.request("GET", f"{BASE}/sessions/{kernel}")
        row: dict[str, Any] = answer.json()
        return row if answer.ok and all(row[name] == value for name, value in fields.items()) else None

    found: dict[str, Any] = wait_for(there, f"session {kernel} to have {fields}")
    validator("Session").validate(found)
    return found


def test_memory_moves_out_and_back_by_request_and_is_the_same(gpu_server: JupyterServer, machine: Machine):
    kernel = gpu_server.start_kernel()
    with Talk(gpu_server, kernel) as talk:
        held = talk.run(HOLDS)
        assert held["status"] == "ok", held
        row = until(gpu_server, kernel, state="holding", memory_mode="blocks")
        assert row["persistent_bytes"] >= 20 * MIB and row["device"].startswith("gpu:")
        assert row["device"] == _device_of(gpu_server, machine, kernel), "it sees the GPU that it was put on"
        assert api(gpu_server, "POST", f"/sessions/{kernel}/restore", 409)["code"] == "not_possible"
        validator("Session").validate(api(gpu_server, "POST", f"/sessions/{kernel}/evict"))
        until(gpu_server, kernel, state="evicted", residency="evicted")
        again = api(gpu_server, "POST", f"/sessions/{kernel}/evict", 409)
        assert again["code"] == "not_possible" and again["message"].startswith("cannot")
        validator("Session").validate(api(gpu_server, "POST", f"/sessions/{kernel}/restore"))
        until(gpu_server, kernel, state="holding", residency="resident")
        assert talk.run(LOOKS)["stdout"] == held["stdout"]
    gpu_server.shut_down(kernel)


def _device_of(server: JupyterServer, machine: Machine, kernel: str) -> str:
    """The device that a kernel's environment lets it see, by the backend's name for it."""
    seen = environment(server.pid_of(kernel))["CUDA_VISIBLE_DEVICES"]
    for number in (0, 1):
        if machine.used_by(server.pid_of(kernel), number):
            assert seen
            return f"gpu:{number}"
    return "none"


def test_a_kernel_without_the_guard_is_plain_and_says_why(gpu_server: JupyterServer):
    kernel = gpu_server.start_kernel(name="plain")
    with Talk(gpu_server, kernel) as talk:
        assert talk.run(HOLDS)["status"] == "ok"
    row = until(gpu_server, kernel, memory_mode="plain")
    assert row["managed"] and "switched off" in row["unguarded_reason"]
    gpu_server.shut_down(kernel)


def test_a_kernel_whose_user_chose_a_gpu_keeps_the_choice(gpu_server: JupyterServer):
    kernel = gpu_server.start_kernel(name="chosen")
    assert environment(gpu_server.pid_of(kernel))["CUDA_VISIBLE_DEVICES"] == "1"
    gpu_server.shut_down(kernel)


def test_devices_say_what_may_be_chosen(gpu_server: JupyterServer):
    devices = wait_for(lambda: api(gpu_server, "GET", "/state")["devices"], "the state")
    assert [device["id"] for device in devices] == ["gpu:0", "gpu:1"]
    for device in devices:
        validator("Device").validate(device)
        assert "fair" in device["policies"]
