"""Servers with other extensions that run cells or keep notebooks themselves: kernels are governed, and cells end as ever.

`JUPYTER_SALUS_TEST_COMPANIONS=1` makes the environments that these tests need; without them they are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.manager.environments import beside_ours, python_of
from tests.manager.running import HOLD, WANT, Backend, JupyterServer, Talk, wait_for

TURN = "sum(i * i for i in range(2_000_000))"


def _server(directory: Path, backend: Backend, environment: Path, *companions: str) -> JupyterServer:
    data = directory / "data"  # where the ids of files are kept
    data.mkdir(parents=True)
    made = JupyterServer(
        directory,
        variables={"JUPYTER_SALUS_SOCKET": backend.socket, "JUPYTER_DATA_DIR": str(data)},
        python=python_of(environment),
        companions=companions,
    )
    return made.wait()


@pytest.fixture(scope="module")
def collaborating(module_tmp: Path, backend: Backend) -> Iterator[JupyterServer]:
    """With jupyter-collaboration, and jupyter-server-nbmodel, which runs cells in the server."""
    environment = beside_ours("collaboration", "jupyter-collaboration", "jupyter-server-nbmodel")
    names = ("jupyter_server_ydoc", "jupyter_server_fileid", "jupyter_server_nbmodel")
    made = _server(module_tmp / "c", backend, environment, *names)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def documents(module_tmp: Path, backend: Backend) -> Iterator[JupyterServer]:
    """With jupyter-server-documents, whose documents live in the server."""
    environment = beside_ours("documents", "jupyter-server-documents")
    made = _server(module_tmp / "d", backend, environment, "jupyter_server_documents", "jupyter_server_fileid")
    yield made
    made.stop()


def _run_by_server(server: JupyterServer, kernel_id: str, code: str) -> str:
    """The address at which the server tells what comes of a cell that it runs itself."""
    answer = server.request("POST", f"api/kernels/{kernel_id}/execute", json={"code": code})
    assert answer.status_code == 202, answer.text
    return str(answer.headers["Location"]).lstrip("/")


def _outcome(server: JupyterServer, location: str) -> dict[str, Any]:
    def ended() -> dict[str, Any] | None:
        answer = server.request("GET", location)
        return answer.json() if answer.status_code != 202 else None

    found: dict[str, Any] = wait_for(ended, "the server to have run the cell")
    return found


def test_a_cell_that_the_server_runs_takes_a_turn_and_is_interrupted_in_a_wait(
    collaborating: JupyterServer, backend: Backend
):
    kernel_id = collaborating.open_notebook("shared.ipynb")["kernel"]["id"]
    holder = collaborating.start_kernel()
    backend.managed(kernel_id), backend.managed(holder)
    opened = collaborating.request(
        "PUT", "api/collaboration/session/shared.ipynb", json={"format": "json", "type": "notebook"}
    )
    assert opened.status_code in (200, 201), opened.text
    outcome = _outcome(collaborating, _run_by_server(collaborating, kernel_id, TURN))
    assert outcome["status"] == "ok" and outcome["execution_count"] == 1, outcome
    assert (backend.session(kernel_id) or {})["turns"] >= 1
    with Talk(collaborating, holder) as other:
        other.until_printed(other.send(HOLD), "holds")
        wait_for(lambda: (backend.session(holder) or {}).get("state") == "running", "the holder's turn")
        waits = _run_by_server(collaborating, kernel_id, WANT)
        wait_for(lambda: (backend.session(kernel_id) or {}).get("state") == "waiting", "the cell to wait")
        assert collaborating.request("POST", f"api/kernels/{kernel_id}/interrupt").status_code == 204
        assert "KeyboardInterrupt" in str(_outcome(collaborating, waits))
    outcome = _outcome(collaborating, _run_by_server(collaborating, kernel_id, "1 + 1"))
    assert outcome["status"] == "ok", outcome
    for one in (kernel_id, holder):
        collaborating.shut_down(one)
        backend.without(one)


def test_a_kernel_beside_documents_in_the_server_is_governed_and_restarts(documents: JupyterServer, backend: Backend):
    kernel_id = documents.open_notebook("kept.ipynb")["kernel"]["id"]
    assert backend.managed(kernel_id)["name"] == "kept.ipynb"
    with Talk(documents, kernel_id, framed=True) as talk:
        assert talk.run(TURN)["status"] == "ok"
    assert (backend.session(kernel_id) or {})["turns"] >= 1
    assert documents.request("POST", f"api/kernels/{kernel_id}/restart").ok
    backend.managed(kernel_id, incarnation=2)
    with Talk(documents, kernel_id, framed=True) as talk:
        assert talk.run("print(1 + 1)")["stdout"] == "2\n"
    documents.shut_down(kernel_id)
    backend.without(kernel_id)
