"""Kernels that don't take the guest by their command line: offered to them when they run, or shown as not managed."""

from __future__ import annotations

from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

from jupyter_salus.manager.injection import EXTENSION_ARGUMENT
from tests.manager.kernelspecs import kernelspec
from tests.manager.running import HOLD, WANT, Backend, JupyterServer, Talk, command_line, wait_for


@pytest.mark.parametrize("name", ["wrapped", "isolated"])
def test_a_kernel_whose_command_line_is_closed_is_offered_the_guest(server: JupyterServer, backend: Backend, name: str):
    kernel_id = server.start_kernel(name=name)
    row = backend.managed(kernel_id)
    assert row["managed"] and row["unmanaged_reason"] is None
    assert EXTENSION_ARGUMENT not in command_line(server.pid_of(kernel_id))
    with Talk(server, kernel_id) as talk:
        reply = talk.run(
            "import os; print('JUPYTER_SALUS_TOKEN' in os.environ, sorted(x for x in dir() if 'salus' in x))"
        )
        assert reply["stdout"] == "False []\n", "the offer leaves nothing in the user's namespace"
        assert reply["execution_count"] == 1, "and counts no execution"
    server.shut_down(kernel_id)
    backend.without(kernel_id)


def test_an_offered_kernel_is_offered_the_guest_again_after_a_restart(server: JupyterServer, backend: Backend):
    kernel_id = server.start_kernel(name="isolated")
    backend.managed(kernel_id)
    assert server.request("POST", f"api/kernels/{kernel_id}/restart").ok
    backend.managed(kernel_id, incarnation=2)
    server.shut_down(kernel_id)


def test_a_kernel_of_another_language_runs_and_is_shown_as_not_managed(server: JupyterServer, backend: Backend):
    kernel_id = server.start_kernel(name="otherlang")
    assert "kernel for sas" in backend.unmanaged(kernel_id)
    row = server.request("GET", f"salus/api/sessions/{kernel_id}").json()
    assert row["managed"] is False and row["here"] is True
    with Talk(server, kernel_id) as talk:
        assert talk.run("print(1 + 1)")["stdout"] == "2\n"
    server.shut_down(kernel_id)
    backend.without(kernel_id)


def test_xeus_python_runs_and_is_shown_as_not_managed(server: JupyterServer, backend: Backend):
    try:
        KernelSpecManager().get_kernel_spec("xpython")
    except NoSuchKernel:
        pytest.skip("xeus-python isn't installed: it has no wheel for this Python or machine")
    kernel_id = server.start_kernel(name="xpython")
    with Talk(server, kernel_id) as talk:  # beside our question
        assert talk.run("print('first')")["stdout"] == "first\n"
    reason = backend.unmanaged(kernel_id)
    assert "doesn't start ipykernel by itself" in reason and "it isn't ipykernel but xeus-python" in reason
    with Talk(server, kernel_id) as talk:
        assert talk.run("print(1 + 1)")["stdout"] == "2\n"
    server.shut_down(kernel_id)
    backend.without(kernel_id)


def test_a_kernel_that_cannot_be_launched_leaves_no_session(server: JupyterServer, backend: Backend, shared_tmp: Path):
    kernelspec(
        shared_tmp / "data", "broken", ["/nowhere/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    )
    before = {row["id"] for row in backend.state()["sessions"]}
    answer = server.request("POST", "api/kernels", json={"name": "broken"})
    assert answer.status_code == 500
    assert {row["id"] for row in backend.state()["sessions"]} == before
    assert "cannot announce" not in server.log.read_text()


def test_what_the_user_configured_for_ipython_is_kept(server: JupyterServer, backend: Backend):
    kernel_id = server.start_kernel()
    backend.managed(kernel_id)
    with Talk(server, kernel_id) as talk:
        reply = talk.run("print(mine, 'autoreload' in str(get_ipython().extension_manager.loaded))")
        assert reply["stdout"] == "42 True\n"
    server.shut_down(kernel_id)
    backend.without(kernel_id)


def test_a_kernel_that_is_interrupted_by_messages_is_interrupted_in_a_wait(server: JupyterServer, backend: Backend):
    holder, waiter = server.start_kernel(), server.start_kernel(name="messages")
    backend.managed(holder), backend.managed(waiter)
    with Talk(server, holder) as first, Talk(server, waiter) as second:
        first.until_printed(first.send(HOLD), "holds")
        wait_for(lambda: (backend.session(holder) or {}).get("state") == "running", "the holder's turn")
        cell = second.send(WANT)
        wait_for(lambda: (backend.session(waiter) or {}).get("state") == "waiting", "the second kernel to wait")
        assert server.request("POST", f"api/kernels/{waiter}/interrupt").status_code == 204
        assert second.reply(cell)["ename"] == "KeyboardInterrupt"
        assert second.run("print(1 + 1)")["stdout"] == "2\n"
    for kernel_id in (holder, waiter):
        server.shut_down(kernel_id)
        backend.without(kernel_id)
