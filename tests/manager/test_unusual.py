"""Servers that are set up in other ways: settings of the base class, ipc, pending kernels, an odd base URL, two at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from jupyter_server._tz import utcnow
from tornado import web

from jupyter_salus.manager.injection import EXTENSION_ARGUMENT
from jupyter_salus.server.routes import BASE, ROUTES
from tests.manager.kernels import Kernels
from tests.manager.running import HOLD, WANT, Backend, JupyterServer, Talk, command_line, wait_for

CONFIG = """
c.MappingKernelManager.cull_idle_timeout = 12345
c.MappingKernelManager.allowed_message_types = []
c.AsyncMultiKernelManager.use_pending_kernels = True
c.MappingKernelManager.transport_encryption = "required"
c.KernelManager.transport = "ipc"
c.KernelManager.shutdown_wait_time = 2

from jupyter_server.auth import Authorizer

class Looks(Authorizer):
    "Who may look on, and change nothing of Salus."

    def is_authorized(self, handler, user, action, resource):
        return resource != "salus" or action == "read"

c.ServerApp.authorizer_class = Looks
"""


@pytest.fixture(scope="module")
def unusual(module_tmp: Path, backend: Backend) -> Iterator[JupyterServer]:
    """ipc, encrypted, pending kernels, an escaped base URL, and the provisioner as everybody's default."""
    directory = module_tmp / "u"
    directory.mkdir()
    variables = {"JUPYTER_SALUS_SOCKET": backend.socket, "JUPYTER_DEFAULT_PROVISIONER_NAME": "salus-provisioner"}
    made = JupyterServer(directory, variables=variables, base_url="/a%40b/", config=CONFIG).wait()
    yield made
    made.stop()


def test_pending_kernels_over_ipc_below_an_escaped_base_url_are_sessions(unusual: JupyterServer, backend: Backend):
    kernel_id = unusual.start_kernel()
    row = backend.managed(kernel_id)
    assert row["incarnation"] == 1, "manager and provisioner announce once"
    pid = unusual.pid_of(kernel_id)
    assert command_line(pid).count(EXTENSION_ARGUMENT) == 1, "and inject once"
    connection = (unusual.runtime / f"kernel-{kernel_id}.json").read_text()
    assert '"transport": "ipc"' in connection and '"curve_publickey"' in connection
    with Talk(unusual, kernel_id) as talk:
        assert talk.run("print(1 + 1)")["stdout"] == "2\n"
    assert unusual.request("GET", f"salus/api/sessions/{kernel_id}").json()["here"]
    assert unusual.request("POST", f"api/kernels/{kernel_id}/restart").ok
    assert backend.managed(kernel_id, incarnation=2)["incarnation"] == 2
    unusual.shut_down(kernel_id)
    backend.without(kernel_id)
    assert "12345" in unusual.log.read_text(), "the base class's cull setting is in force"


def test_who_may_only_look_on_changes_nothing(unusual: JupyterServer):
    assert wait_for(lambda: unusual.request("GET", f"{BASE}/state"), "the state").status_code == 200
    for route in ROUTES:
        for verb in route.verbs:
            if verb.access == "write":
                answer = unusual.request(verb.method, BASE + route.path.replace("{id}", "any"), json={})
                assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), route.path
                assert answer.json()["message"].startswith("cannot")


def test_an_interrupt_of_a_pending_kernel_is_no_error_of_the_servers(unusual: JupyterServer, backend: Backend):
    kernel_id = unusual.start_kernel()
    answer = unusual.request("POST", f"api/kernels/{kernel_id}/interrupt")
    assert answer.status_code in (204, 409), answer.text
    backend.managed(kernel_id)
    with Talk(unusual, kernel_id) as talk:
        talk.run("1 + 1")
        assert talk.run("print(1 + 1)")["stdout"] == "2\n"
    unusual.shut_down(kernel_id)
    backend.without(kernel_id)


async def test_a_kernel_that_is_not_ready_cannot_be_interrupted_and_says_so(kernels: Kernels, backend: Backend):
    manager = kernels.manager(salus_socket=backend.socket, use_pending_kernels=True)
    kernel_id = await manager.start_kernel()
    with pytest.raises(web.HTTPError) as refused:
        manager.interrupt_kernel(kernel_id)
    assert refused.value.status_code == 409
    kernel: Any = manager.get_kernel(kernel_id)
    await kernel.ready


async def test_a_kernel_whose_cell_waits_is_not_culled(kernels: Kernels, backend: Backend):
    manager = kernels.manager(
        salus_socket=backend.socket, cull_busy=True, cull_connected=True, cull_idle_timeout=60, cull_interval=3600
    )
    holder, waiter, idle = [await manager.start_kernel() for _ in range(3)]
    running: dict[str, Any] = {kernel_id: manager.get_kernel(kernel_id) for kernel_id in (holder, waiter, idle)}
    clients: dict[str, Any] = {}
    for kernel_id, kernel in running.items():
        clients[kernel_id] = client = kernel.client()
        client.start_channels()
        await client.wait_for_ready(timeout=60)
    clients[holder].execute(HOLD)
    wait_for(lambda: (backend.session(holder) or {}).get("state") == "running", "the holder's turn")
    clients[waiter].execute(WANT)
    wait_for(lambda: (backend.session(waiter) or {}).get("state") == "waiting", "the other one to wait")
    long_ago = utcnow() - timedelta(hours=1)
    for kernel_id in (waiter, idle):
        running[kernel_id].last_activity = long_ago
        await manager.cull_kernel_if_idle(kernel_id)
    for client in clients.values():
        client.stop_channels()
    assert waiter in manager and running[waiter].last_activity > long_ago, "its wait is activity"
    assert idle not in manager
    backend.without(idle)


def test_two_servers_of_one_user_share_a_backend(unusual: JupyterServer, server: JupyterServer, backend: Backend):
    mine, theirs = server.start_kernel(), unusual.start_kernel()
    backend.managed(mine), backend.managed(theirs)

    def here(asked: JupyterServer) -> set[str] | None:
        rows = asked.request("GET", "salus/api/sessions").json()["sessions"]
        return {row["id"] for row in rows if row["here"]} if {mine, theirs} <= {row["id"] for row in rows} else None

    assert wait_for(lambda: here(server), "both sessions") & {mine, theirs} == {mine}
    assert wait_for(lambda: here(unusual), "both sessions") & {mine, theirs} == {theirs}
    server.shut_down(mine)
    unusual.shut_down(theirs)
    backend.without(mine)
    backend.without(theirs)
