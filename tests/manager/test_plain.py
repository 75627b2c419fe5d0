"""Where there is no backend, or none is wanted, kernels run as plain ones and the log says why."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from traitlets.config import Config

from jupyter_salus.manager import Manager
from jupyter_salus.manager.injection import BOOT_DIRECTORY, EXTENSION_ARGUMENT
from tests.manager.kernels import Kernels
from tests.manager.running import PATIENCE_S, JupyterServer, command_line, environment, wait_for


async def test_a_kernel_starts_without_a_backend_and_the_log_says_so_once(
    kernels: Kernels, caplog: pytest.LogCaptureFixture
):
    manager = kernels.manager()
    wait_for(lambda: "cannot reach the backend" in caplog.text, "the log line about the backend")
    kernel_id = await manager.start_kernel()
    assert await kernels.run(manager, kernel_id, "1 + 1") == "2"
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [line.getMessage().split(":")[0] for line in lines] == ["Salus", "Salus"], [
        line.getMessage() for line in lines
    ]
    assert "starts as a plain one for now" in lines[1].getMessage()


async def test_a_kernel_that_starts_before_its_backend_has_all_that_a_guest_needs(kernels: Kernels):
    manager = kernels.manager()
    kernel_id = await manager.start_kernel()
    pid = kernels.pid(manager, kernel_id)
    assert EXTENSION_ARGUMENT in command_line(pid)
    found = environment(pid)
    assert found["PYTHONPATH"].split(":")[0] == BOOT_DIRECTORY
    assert found["JUPYTER_SALUS_SESSION"] == found["JUPYTER_SALUS_KERNEL_ID"] == kernel_id
    assert found["JUPYTER_SALUS_INCARNATION"] == "1"
    assert len(found["JUPYTER_SALUS_TOKEN"]) >= 32
    assert "PATH" in found, "the rest of the environment is there as well"


async def test_nothing_is_put_into_kernels_where_salus_is_turned_off(kernels: Kernels):
    manager = kernels.manager(salus_enabled=False)
    assert manager.salus_link is None
    kernel_id = await manager.start_kernel()
    pid = kernels.pid(manager, kernel_id)
    assert EXTENSION_ARGUMENT not in command_line(pid)
    assert "JUPYTER_SALUS_SESSION" not in environment(pid)
    assert await kernels.run(manager, kernel_id, "1 + 1") == "2"


async def test_a_socket_path_that_cannot_be_used_leaves_kernels_plain(
    kernels: Kernels, caplog: pytest.LogCaptureFixture
):
    manager = kernels.manager(salus_socket="/tmp/" + "x" * 120)
    assert manager.salus_link is None
    assert "limit is 107" in caplog.text
    kernel_id = await manager.start_kernel()
    assert await kernels.run(manager, kernel_id, "1 + 1") == "2"


def test_on_windows_there_is_one_log_line_and_no_backend(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, short_tmp: Path
):
    monkeypatch.setattr("jupyter_salus.manager.opening.sys.platform", "win32")
    made = Kernels(short_tmp)
    assert made.manager().salus_link is None
    assert made.manager().salus_link is None
    assert [record.getMessage() for record in caplog.records if "Windows" in record.getMessage()] == [
        "Salus: on Windows there is no backend; kernels run as plain ones"
    ]


def test_a_users_own_kernel_manager_class_wins_and_is_told_what_it_costs(
    kernels: Kernels, caplog: pytest.LogCaptureFixture
):
    own = "jupyter_server.services.kernels.kernelmanager.ServerKernelManager"
    manager = kernels.manager(kernel_manager_class=own)
    assert manager.kernel_manager_class == own
    assert "SalusKernelManagerMixin" in caplog.text


def test_a_users_settings_for_the_base_class_hold(short_tmp: Path):
    manager = Manager(
        kernel_spec_manager=KernelSpecManager(),
        salus_enabled=False,
        config=Config(MappingKernelManager={"cull_idle_timeout": 77, "default_kernel_name": "mine"}),
    )
    assert (manager.cull_idle_timeout, manager.default_kernel_name) == (77, "mine")


def test_a_gateway_ends_the_server_with_one_sentence(short_tmp: Path):
    server = JupyterServer(short_tmp, ["--GatewayClient.url=http://127.0.0.1:9"])
    assert server.process.wait(PATIENCE_S) == 1
    server.http.close()
    said = server.log.read_text()
    assert "cannot use jupyter_salus.Manager together with the gateway http://127.0.0.1:9" in said
    assert "Traceback" not in said
