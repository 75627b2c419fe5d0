"""Backends that aren't there yet, die, come back, or are the user's own, which the link starts."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_salus.errors import BackendGone
from jupyter_salus.manager.enrolment import Enrolment
from jupyter_salus.manager.link import Link, link_to
from jupyter_salus.manager.names import Notebook
from jupyter_salus.protocol.address import find
from jupyter_salus.protocol.client import Client
from tests.manager.kernels import Kernels
from tests.manager.running import Backend, JupyterServer, Talk, alive, wait_for

LOG = logging.getLogger("jupyter_salus.tests")


@pytest.fixture
def own_backend(short_tmp: Path) -> Iterator[Backend]:
    """A backend of the test's own, which it may kill."""
    made = Backend(short_tmp)
    yield made
    made.stop()


@pytest.fixture
def own_link(own_address: None) -> Iterator[Link]:
    """A link to the user's own address, which starts a backend; that is ended with the test."""
    link = link_to(find(os.environ), LOG)
    yield link
    pid = link.backend_pid
    link.close()
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not alive(pid), "the own backend to end")


def _pid(link: Link, other_than: int | None = None) -> int:
    return int(wait_for(lambda: link.backend_pid if link.backend_pid != other_than else None, "the link's backend"))


def test_the_users_own_backend_is_started_and_started_again(own_link: Link):
    first = _pid(own_link)
    assert Path(f"/proc/{first}/environ").exists()
    assert os.getsid(first) != os.getsid(0), "it lives in a process session of its own"
    os.kill(first, signal.SIGKILL)
    second = _pid(own_link, other_than=first)
    assert not alive(first) and alive(second)


async def test_a_backend_that_died_with_another_servers_unit_is_replaced_and_knows_the_kernels_here(
    own_link: Link, kernels: Kernels
):
    """Whoever started it, it serves all servers of the user; those that are left start the next one."""
    manager = kernels.manager(salus_socket="")
    assert manager.salus_link is own_link
    kernel_id = await manager.start_kernel()
    first = await asyncio.to_thread(_pid, own_link)
    await asyncio.to_thread(wait_for, lambda: _known(own_link.address.path, kernel_id), "the session")
    os.kill(first, signal.SIGKILL)
    await asyncio.to_thread(_pid, own_link, first)
    await asyncio.to_thread(wait_for, lambda: _known(own_link.address.path, kernel_id), "the session at the next one")
    assert await kernels.run(manager, kernel_id, "1 + 1") == "2"


def _known(socket: str, kernel_id: str) -> bool:
    """Whether the backend knows the kernel and its guest: bytes are counted from then on."""
    try:
        with Client(socket) as client:
            rows = client.ask("state")["sessions"]
    except BackendGone:
        return False
    return any(row["id"] == kernel_id and row["persistent_bytes"] > 0 for row in rows)


def test_a_configured_address_is_never_served_by_a_backend_of_ours(short_tmp: Path):
    link = link_to(find({}, str(short_tmp / "nobody.sock")), LOG)
    wait_for(lambda: link.problem and "No such file" in link.problem, "the link to notice")
    assert not link.connected and not (short_tmp / "nobody.sock").exists()


async def test_what_is_said_before_there_is_a_backend_is_said_when_it_comes(short_tmp: Path):
    link = link_to(find({}, str(short_tmp / "b.sock")), LOG)
    enrolment = Enrolment("early", Notebook("early.ipynb", "a/early.ipynb"))
    enrolment.begin()
    assert not await link.bring(enrolment)
    enrolment.pid, enrolment.unmanaged = os.getpid(), "it is a test"
    link.touch(enrolment)
    backend = Backend(short_tmp)
    try:
        assert backend.unmanaged("early") == "it is a test"
        row = backend.session("early")
        assert row is not None and (row["name"], row["path"]) == ("early.ipynb", "a/early.ipynb")
        enrolment.ended = True
        assert await link.bring(enrolment, patience_s=60)
        assert backend.session("early") is None
    finally:
        link.close()
        backend.stop()


async def test_a_kernel_that_started_before_its_backend_becomes_a_session(kernels: Kernels, short_tmp: Path):
    manager = kernels.manager(salus_socket=str(short_tmp / "b.sock"))
    kernel_id = await manager.start_kernel()
    assert await kernels.run(manager, kernel_id, "1 + 1") == "2"
    backend = Backend(short_tmp)
    try:
        assert backend.managed(kernel_id)["managed"]
        await kernels.end()
        backend.without(kernel_id)
    finally:
        backend.stop()


def test_a_backend_that_dies_costs_no_cell_and_its_successor_knows_all_again(own_backend: Backend, short_tmp: Path):
    backend = own_backend
    server = JupyterServer(short_tmp, variables={"JUPYTER_SALUS_SOCKET": backend.socket}).wait()
    try:
        session = server.open_notebook("first.ipynb")
        kernel_id = session["kernel"]["id"]
        backend.managed(kernel_id)
        assert server.request("PATCH", f"salus/api/sessions/{kernel_id}", json={"priority": "high"}).ok
        with Talk(server, kernel_id) as talk:
            cell = talk.send(
                "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('end')"
            )
            talk.until_printed(cell, "begun")
            backend.kill()
            answer = wait_for(lambda: _gone(server), "the server to notice")
            assert answer["code"] == "backend_gone" and answer["detail"]["address"] == backend.socket
            # Renamed, and another one started, while nobody is there to hear of it.
            change = {"path": "second.ipynb", "name": "second.ipynb", "type": "notebook"}
            assert server.request("PATCH", f"api/sessions/{session['id']}", json=change).ok
            late = server.start_kernel()
            backend.restart()
            row = backend.managed(kernel_id)
            assert row["incarnation"] == 1
            wait_for(lambda: (backend.session(kernel_id) or {}).get("name") == "second.ipynb", "the new name")
            backend.managed(late)
            (server.root / "go").touch()
            reply = talk.reply(cell)
            assert reply["status"] == "ok" and reply["stdout"] == "end\n"
        state = wait_for(lambda: _there(server), "the server to see the new backend")
        assert {row["id"] for row in state["sessions"]} == {kernel_id, late}
        assert all(row["here"] for row in state["sessions"])
    finally:
        server.stop()


def _gone(server: JupyterServer) -> dict[str, object] | None:
    answer = server.request("GET", "salus/api/state")
    return json.loads(answer.text) if answer.status_code == 503 else None


def _there(server: JupyterServer) -> dict[str, list[dict[str, object]]] | None:
    answer = server.request("GET", "salus/api/state")
    return json.loads(answer.text) if answer.ok and len(answer.json()["sessions"]) == 2 else None


def test_what_changes_after_the_link_was_closed_raises_nothing(short_tmp: Path):
    link = link_to(find({}, str(short_tmp / "nobody.sock")), LOG)
    link.close()
    enrolment = Enrolment("late", Notebook("late.ipynb"))
    enrolment.begin()
    assert isinstance(link.touch(enrolment).exception(timeout=0), BackendGone)
