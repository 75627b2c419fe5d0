"""Kernels without a server: nbclient by the provisioner, and by the class that the command line's `run` uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from jupyter_salus.manager import NotebookKernelManager
from tests.manager.running import PATIENCE_S, Backend

#: Without the check of IRIs, which takes seconds to load and no notebook needs.
QUICK = str(Path(__file__).parents[1] / "hub" / "quick")
#: Asks the backend, from within the kernel, what it knows of it.
ASK = """
import json, os
from jupyter_salus.protocol.client import Client
with Client(os.environ["JUPYTER_SALUS_SOCKET"]) as client:
    rows = client.ask("state")["sessions"]
print(json.dumps([row for row in rows if row["id"] == os.environ["JUPYTER_SALUS_SESSION"]]))
"""


#: Cells without ids and times in what they say, some of which take turns.
SAVED = (
    "import sys\nfrom IPython.display import HTML, clear_output, display",
    "sum(i * i for i in range(2_000_000))",
    "print('a'); print('b', file=sys.stderr)",
    "for i in range(3):\n    clear_output(wait=True)\n    display(i)",
    "handle = display(HTML('<b>1</b>'), display_id='mine')\nfor i in range(900_000): i * i\nhandle.update(HTML('<i>2</i>'))",
    "def f(n): return n / 0\nf(1)",
    "%%capture held\nprint('captured')",
    "held.stdout",
    "import asyncio\nawait asyncio.sleep(0, [i async for i in agen()]) if 'agen' in dir() else 'no generator'",
    "%xmode Minimal\n{}['k']",
)


def _notebook(*cells: str, metadata: dict[str, Any] | None = None) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata=metadata or {})


def _printed(notebook: nbformat.NotebookNode) -> str:
    return "".join(output["text"] for output in notebook.cells[-1].outputs if output["output_type"] == "stream")


async def test_a_notebook_run_by_our_class_is_a_session_with_its_name(backend: Backend):
    manager = NotebookKernelManager(
        kernel_name="python3",
        salus_socket=backend.socket,
        salus_name="train.ipynb",
        salus_path="a/train.ipynb",
        salus_priority="low",
    )
    client = NotebookClient(_notebook("1 + 1", ASK), km=manager, timeout=PATIENCE_S)
    (row,) = json.loads(_printed(await client.async_execute(cleanup_kc=True)))
    assert (row["name"], row["path"], row["priority"]) == ("train.ipynb", "a/train.ipynb", "low")
    assert row["managed"] and row["persistent_bytes"] > 0
    backend.without(row["id"])


async def test_a_notebook_that_fails_leaves_no_session(backend: Backend):
    manager = NotebookKernelManager(kernel_name="python3", salus_socket=backend.socket)
    client = NotebookClient(_notebook("raise ValueError('mine')"), km=manager, timeout=PATIENCE_S)
    with pytest.raises(CellExecutionError, match="mine"):
        await client.async_execute(cleanup_kc=True)
    backend.without(str(manager.kernel_id))


def test_nbconvert_runs_governed_by_the_provisioner_and_names_itself(backend: Backend, short_tmp: Path):
    path = short_tmp / "train.ipynb"
    nbformat.write(_notebook("1 + 1", ASK), path)
    command = [sys.executable, "-m", "jupyter", "nbconvert", "--to", "notebook", "--execute", "--output", "out.ipynb"]
    environ = {
        **os.environ,
        "JUPYTER_SALUS_SOCKET": backend.socket,
        "JUPYTER_DEFAULT_PROVISIONER_NAME": "salus-provisioner",
        "PYTHONPATH": QUICK,
    }
    done = subprocess.run([*command, str(path)], env=environ, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(_printed(nbformat.read(short_tmp / "out.ipynb", as_version=4)))
    assert row["managed"] and row["persistent_bytes"] > 0
    assert "nbconvert" in row["name"]
    backend.without(row["id"])


def test_papermill_runs_governed_by_the_provisioner(backend: Backend, short_tmp: Path):
    path = short_tmp / "train.ipynb"
    metadata = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    nbformat.write(_notebook("total = sum(i * i for i in range(2_000_000))", ASK, metadata=metadata), path)
    environ = {
        **os.environ,
        "JUPYTER_SALUS_SOCKET": backend.socket,
        "JUPYTER_DEFAULT_PROVISIONER_NAME": "salus-provisioner",
        "PYTHONPATH": QUICK,
    }
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", str(path), str(short_tmp / "out.ipynb")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(_printed(nbformat.read(short_tmp / "out.ipynb", as_version=4)))
    assert row["managed"] and row["turns"] >= 1 and "papermill" in row["name"]
    backend.without(row["id"])


async def test_a_saved_notebook_has_the_same_bytes_as_without_salus(backend: Backend, short_tmp: Path):
    saved = []
    for manager in (
        NotebookKernelManager(kernel_name="python3", salus_socket=backend.socket),
        AsyncKernelManager(kernel_name="python3"),
    ):
        notebook = _notebook(*SAVED)
        for number, cell in enumerate(notebook.cells):
            cell["id"] = f"cell-{number}"
        client = NotebookClient(notebook, km=manager, timeout=PATIENCE_S, allow_errors=True, record_timing=False)
        done = await client.async_execute(cleanup_kc=True)
        saved.append(nbformat.writes(done).encode())
    assert saved[0] == saved[1]
    outputs = [output for cell in nbformat.reads(saved[0], as_version=4).cells for output in cell.outputs]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data", "execute_result", "error"}


async def test_a_kernelspec_may_name_the_provisioner(
    backend: Backend, short_tmp: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JUPYTER_SALUS_SOCKET", backend.socket)
    client = NotebookClient(_notebook(ASK), km=_governed(short_tmp), timeout=PATIENCE_S)
    (row,) = json.loads(_printed(await client.async_execute(cleanup_kc=True)))
    assert row["managed"] and row["persistent_bytes"] > 0
    backend.without(row["id"])


async def test_the_provisioner_runs_kernels_without_a_backend(short_tmp: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JUPYTER_SALUS_SOCKET", str(short_tmp / "nobody.sock"))
    client = NotebookClient(_notebook("print(1 + 1)"), km=_governed(short_tmp), timeout=PATIENCE_S)
    assert _printed(await client.async_execute(cleanup_kc=True)) == "2\n"


def _governed(directory: Path) -> AsyncKernelManager:
    """A kernel manager that never heard of Salus, and a kernelspec that did."""
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "governed",
        "language": "python",
        "metadata": {"kernel_provisioner": {"provisioner_name": "salus-provisioner"}},
    }
    (directory / "governed").mkdir()
    (directory / "governed" / "kernel.json").write_text(json.dumps(spec))
    specs = KernelSpecManager(kernel_dirs=[str(directory)])
    return AsyncKernelManager(kernel_name="governed", kernel_spec_manager=specs)
