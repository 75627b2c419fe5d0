"""The roads that a kernel of a real server takes: started, restarted, killed, interrupted, renamed, ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_salus.manager.injection import BOOT_DIRECTORY, EXTENSION_ARGUMENT
from tests.manager.running import (
    HOLD,
    PATIENCE_S,
    WANT,
    Backend,
    JupyterServer,
    Talk,
    alive,
    command_line,
    ended,
    environment,
    wait_for,
)


@pytest.fixture
def kernel(server: JupyterServer) -> Iterator[str]:
    """A kernel without a notebook."""
    made = server.start_kernel()
    yield made
    server.request("DELETE", f"api/kernels/{made}")


@pytest.fixture
def holder(server: JupyterServer) -> Iterator[str]:
    """Another one."""
    made = server.start_kernel()
    yield made
    server.request("DELETE", f"api/kernels/{made}")


def test_a_notebooks_kernel_is_a_session_under_its_name(server: JupyterServer, backend: Backend):
    session = server.open_notebook("vision/train.ipynb")
    kernel_id = session["kernel"]["id"]
    row = backend.managed(kernel_id)
    assert (row["name"], row["path"], row["kernel_id"]) == ("train.ipynb", "vision/train.ipynb", kernel_id)
    assert row["managed"] and row["incarnation"] == 1
    shown = server.request("GET", f"salus/api/sessions/{kernel_id}").json()
    assert shown["here"] and shown["own"] and shown["name"] == "train.ipynb"
    server.request("DELETE", f"api/sessions/{session['id']}")
    backend.without(kernel_id)


def test_a_kernel_started_without_an_environment_has_all_of_the_servers(
    server: JupyterServer, backend: Backend, kernel: str
):
    row = backend.managed(kernel)
    assert row["name"] == f"python3 {kernel[:8]}" and row["path"] is None
    pid = server.pid_of(kernel)
    assert command_line(pid).count(EXTENSION_ARGUMENT) == 1
    assert environment(pid)["PYTHONPATH"].split(os.pathsep)[0] == BOOT_DIRECTORY
    assert environment(pid)["HOME"] == os.environ["HOME"]
    code = "import os, sys; print('JUPYTER_SALUS_TOKEN' in os.environ, os.environ.get('PYTHONPATH'))"
    with Talk(server, kernel) as talk:
        assert talk.run(code)["stdout"] == f"False {os.environ.get('PYTHONPATH')}\n"


def test_a_restart_keeps_the_session_and_begins_an_incarnation(server: JupyterServer, backend: Backend):
    session = server.open_notebook("restarted.ipynb")
    kernel_id = session["kernel"]["id"]
    backend.managed(kernel_id)
    before = server.pid_of(kernel_id)
    token = environment(before)["JUPYTER_SALUS_TOKEN"]
    assert server.request("POST", f"api/kernels/{kernel_id}/restart").ok
    row = backend.managed(kernel_id, incarnation=2)
    assert row["name"] == "restarted.ipynb"
    after = server.pid_of(kernel_id, not_pid=before)
    assert not alive(before)
    assert environment(after)["JUPYTER_SALUS_TOKEN"] != token
    assert environment(after)["JPY_SESSION_NAME"].endswith("restarted.ipynb"), "the first launch's environment is kept"
    with Talk(server, kernel_id) as talk:
        assert talk.run("print(1 + 1)")["stdout"] == "2\n"
    server.request("DELETE", f"api/sessions/{session['id']}")


def test_a_killed_kernel_is_a_session_again_twice_in_a_row(server: JupyterServer, backend: Backend, kernel: str):
    backend.managed(kernel)
    pid = server.pid_of(kernel)
    for incarnation in (2, 3):
        os.kill(pid, signal.SIGKILL)
        pid = server.pid_of(kernel, not_pid=pid)
        backend.managed(kernel, incarnation)
    with Talk(server, kernel) as talk:
        assert talk.run("print(1 + 1)")["stdout"] == "2\n"


def test_an_interrupt_ends_a_busy_cell(server: JupyterServer, backend: Backend, kernel: str):
    with Talk(server, kernel) as talk:
        cell = talk.send("import time\nprint('begun', flush=True)\ntime.sleep(300)")
        talk.until_printed(cell, "begun")
        assert server.request("POST", f"api/kernels/{kernel}/interrupt").status_code == 204
        assert talk.reply(cell)["ename"] == "KeyboardInterrupt"
        assert talk.run("print(1 + 1)")["stdout"] == "2\n"


def test_an_interrupt_ends_a_waiting_cell(server: JupyterServer, backend: Backend, kernel: str, holder: str):
    backend.managed(holder), backend.managed(kernel)
    with Talk(server, holder) as first, Talk(server, kernel) as second:
        first.until_printed(first.send(HOLD), "holds")
        wait_for(lambda: (backend.session(holder) or {}).get("state") == "running", "the holder's turn")
        cell = second.send(WANT)
        row = wait_for(lambda: _waiting(backend, kernel), "the second kernel to wait")
        assert row["reason"]["behind"] == holder
        assert server.request("POST", f"api/kernels/{kernel}/interrupt").status_code == 204
        assert second.reply(cell)["ename"] == "KeyboardInterrupt"
        assert second.run("print(1 + 1)")["stdout"] == "2\n"
        assert (backend.session(holder) or {})["state"] in ("running", "yielding"), "the other goes on"


def _waiting(backend: Backend, id: str) -> dict[str, object] | None:
    row = backend.session(id)
    return row if row is not None and row["state"] == "waiting" else None


def test_an_interrupt_right_after_a_restart_kills_nothing(server: JupyterServer, backend: Backend, kernel: str):
    pid = server.pid_of(kernel)
    for incarnation in (2, 3):
        assert server.request("POST", f"api/kernels/{kernel}/restart").ok
        assert server.request("POST", f"api/kernels/{kernel}/interrupt").status_code == 204
        row = backend.managed(kernel, incarnation)
        after = server.pid_of(kernel, not_pid=pid)
        with Talk(server, kernel) as talk:
            # An interrupt is sent once the kernel can take it, and may meet the first cell.
            talk.run("1 + 1")
            assert talk.run("print(1 + 1)")["stdout"] == "2\n"
        assert row["incarnation"] == incarnation and alive(after), "no automatic restart came in between"
        pid = after


def test_a_rename_reaches_the_backend_and_the_sidebar(server: JupyterServer, backend: Backend):
    session = server.open_notebook("before.ipynb")
    kernel_id = session["kernel"]["id"]
    backend.managed(kernel_id)
    change = {"path": "moved/after.ipynb", "name": "after.ipynb", "type": "notebook"}
    assert server.request("PATCH", f"api/sessions/{session['id']}", json=change).ok
    shown = server.request("GET", f"salus/api/sessions/{kernel_id}").json()
    assert (shown["name"], shown["path"]) == ("after.ipynb", "moved/after.ipynb"), "names are those of this moment"
    wait_for(lambda: (backend.session(kernel_id) or {}).get("path") == "moved/after.ipynb", "the backend to hear of it")
    assert (backend.session(kernel_id) or {})["name"] == "after.ipynb"
    server.request("DELETE", f"api/sessions/{session['id']}")


def test_a_kernel_that_is_shut_down_leaves_nothing(server: JupyterServer, backend: Backend):
    kernel_id = server.start_kernel()
    backend.managed(kernel_id)
    pid = server.pid_of(kernel_id)
    server.shut_down(kernel_id)
    backend.without(kernel_id)
    ended(pid)


def test_kernels_leave_the_backend_with_their_server(backend: Backend, short_tmp: Path):
    """By SIGINT as a hub sends it, without a terminal, after which no hook of an extension or a manager runs; by SIGTERM;
    and by SIGKILL. The three servers start side by side, since that is what takes the time."""
    signs = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    doomed = []
    for sign in signs:
        directory = short_tmp / sign.name
        directory.mkdir()
        doomed.append(JupyterServer(directory, variables={"JUPYTER_SALUS_SOCKET": backend.socket}))
    try:
        kernels = [server.wait().start_kernel() for server in doomed]
        pids = [server.pid_of(kernel_id) for server, kernel_id in zip(doomed, kernels, strict=True)]
        for kernel_id in kernels:
            backend.managed(kernel_id)
        for server, sign in zip(doomed, signs, strict=True):
            server.process.send_signal(sign)
        for server, kernel_id, pid in zip(doomed, kernels, pids, strict=True):
            server.process.wait(PATIENCE_S)
            backend.without(kernel_id)
            ended(pid)
    finally:
        for server in doomed:
            server.stop()
