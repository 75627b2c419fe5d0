"""Kernels that don't take the guest by their command line: offered to them when they run, or shown as not managed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

from jupyter_salus.manager.injection import EXTENSION_ARGUMENT
from tests.manager.running import Backend, JupyterServer, Talk, command_line

WRAPPER = f"""#!/bin/sh
# Starts ipykernel by a file of its own, as cluster scripts and environment managers do.
exec {sys.executable} "$(dirname "$0")/start.py" -f "$1"
"""
START = "from ipykernel.kernelapp import launch_new_instance\nlaunch_new_instance()\n"


def _kernelspec(directory: Path, name: str, argv: list[str], language: str = "python") -> Path:
    made = directory / "kernels" / name
    made.mkdir(parents=True)
    spec = {"argv": argv, "display_name": name, "language": language, "metadata": {"kernel_of": "these tests"}}
    (made / "kernel.json").write_text(json.dumps(spec))
    return made


@pytest.fixture(scope="module")
def specs(module_tmp: Path) -> Path:
    """A data directory with kernelspecs of the kinds that people have."""
    directory = module_tmp / "data"
    wrapped = _kernelspec(directory, "wrapped", ["{resource_dir}/run.sh", "{connection_file}"])
    (wrapped / "run.sh").write_text(WRAPPER)
    (wrapped / "run.sh").chmod(0o755)
    (wrapped / "start.py").write_text(START)
    isolated = [sys.executable, "-I", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    _kernelspec(directory, "isolated", isolated)
    _kernelspec(directory, "foreign", isolated[:1] + isolated[2:], language="sas")
    other = [sys.executable, "{resource_dir}/start.py", "-f", "{connection_file}"]
    _kernelspec(directory, "otherlang", other, language="sas")
    (directory / "kernels" / "otherlang" / "start.py").write_text(START)
    return directory


@pytest.fixture(scope="module")
def doors(module_tmp: Path, backend: Backend, specs: Path) -> Iterator[JupyterServer]:
    """A server that has those kernelspecs, and a person's own IPython configuration."""
    profile = module_tmp / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text(
        "c.InteractiveShellApp.exec_lines = ['mine = 41 + 1']\nc.InteractiveShellApp.extensions = ['autoreload']\n"
    )
    variables = {
        "JUPYTER_SALUS_SOCKET": backend.socket,
        "JUPYTER_PATH": str(specs),
        "IPYTHONDIR": str(module_tmp / "ipython"),
    }
    made = JupyterServer(module_tmp, ["--KernelManager.shutdown_wait_time=2"], variables).wait()
    yield made
    made.stop()


@pytest.mark.parametrize("name", ["wrapped", "isolated"])
def test_a_kernel_whose_command_line_is_closed_is_offered_the_guest(doors: JupyterServer, backend: Backend, name: str):
    kernel_id = doors.start_kernel(name=name)
    row = backend.managed(kernel_id)
    assert row["managed"] and row["unmanaged_reason"] is None
    assert EXTENSION_ARGUMENT not in command_line(doors.pid_of(kernel_id))
    with Talk(doors, kernel_id) as talk:
        reply = talk.run(
            "import os; print('JUPYTER_SALUS_TOKEN' in os.environ, sorted(x for x in dir() if 'salus' in x))"
        )
        assert reply["stdout"] == "False []\n", "the offer leaves nothing in the user's namespace"
        assert reply["execution_count"] == 1, "and counts no execution"
    doors.shut_down(kernel_id)
    backend.without(kernel_id)


def test_an_offered_kernel_is_offered_the_guest_again_after_a_restart(doors: JupyterServer, backend: Backend):
    kernel_id = doors.start_kernel(name="isolated")
    backend.managed(kernel_id)
    assert doors.request("POST", f"api/kernels/{kernel_id}/restart").ok
    backend.managed(kernel_id, incarnation=2)
    doors.shut_down(kernel_id)


def test_a_kernel_of_another_language_runs_and_is_shown_as_not_managed(doors: JupyterServer, backend: Backend):
    kernel_id = doors.start_kernel(name="otherlang")
    assert "kernel for sas" in backend.unmanaged(kernel_id)
    row = doors.request("GET", f"salus/api/sessions/{kernel_id}").json()
    assert row["managed"] is False and row["here"] is True
    with Talk(doors, kernel_id) as talk:
        assert talk.run("print(1 + 1)")["stdout"] == "2\n"
    doors.shut_down(kernel_id)
    backend.without(kernel_id)


def test_xeus_python_runs_and_is_shown_as_not_managed(doors: JupyterServer, backend: Backend):
    try:
        KernelSpecManager().get_kernel_spec("xpython")
    except NoSuchKernel:
        pytest.skip("xeus-python isn't installed: it has no wheel for this Python or machine")
    kernel_id = doors.start_kernel(name="xpython")
    reason = backend.unmanaged(kernel_id)
    assert "doesn't start ipykernel by itself" in reason and "when asked" in reason
    with Talk(doors, kernel_id) as talk:
        assert talk.run("print(1 + 1)")["stdout"] == "2\n"
    doors.shut_down(kernel_id)
    backend.without(kernel_id)


def test_a_kernel_that_cannot_be_launched_leaves_no_session(doors: JupyterServer, backend: Backend, specs: Path):
    _kernelspec(specs, "broken", ["/nowhere/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"])
    before = {row["id"] for row in backend.state()["sessions"]}
    answer = doors.request("POST", "api/kernels", json={"name": "broken"})
    assert answer.status_code == 500
    assert {row["id"] for row in backend.state()["sessions"]} == before
    assert "cannot announce" not in doors.log.read_text()


def test_what_the_user_configured_for_ipython_is_kept(doors: JupyterServer, backend: Backend):
    kernel_id = doors.start_kernel()
    backend.managed(kernel_id)
    with Talk(doors, kernel_id) as talk:
        reply = talk.run("print(mine, 'autoreload' in str(get_ipython().extension_manager.loaded))")
        assert reply["stdout"] == "42 True\n"
    doors.shut_down(kernel_id)
    backend.without(kernel_id)
