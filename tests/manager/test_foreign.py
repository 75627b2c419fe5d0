"""Kernels of environments that aren't ours: governed without anything being installed, written or left there.

Two environments have one version of ipykernel and nothing else; others are of other Pythons, where those are at hand.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_salus.manager.injection import BOOT_DIRECTORY
from tests.guest.interpreters import interpreter
from tests.manager.environments import IPYKERNELS, environment, pip, python_of
from tests.manager.kernelspecs import kernelspec
from tests.manager.running import Backend, JupyterServer, Talk, command_line

#: What a cell sees of us, and that it may use the public functions.
LOOKS = """
import importlib.util, os, subprocess, sys
ask = [sys.executable, "-c", "import importlib.util, os; print(importlib.util.find_spec('jupyter_salus'), os.getcwd())"]
outside = subprocess.run(ask, capture_output=True, text=True, cwd="/").stdout.strip()
ours = [name for name in sys.modules if name.split(".")[0] == "jupyter_salus"]
import jupyter_salus
jupyter_salus.boundary()
items = list(jupyter_salus.iterations("ab"))
print([outside, ours, items, sys.prefix, [one for one in sys.path if "jupyter_salus" in one], os.environ.get("PYTHONPATH")])
"""
#: A cell that takes a turn.
COMPUTES = "for i in range(2_000_000): i * i"


def files_of(directory: Path) -> dict[str, int]:
    """Every file below, with the time of its last change."""
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


def foreign_python(name: str) -> str:
    """An interpreter by an ipykernel's or a Python's version; skips where the latter isn't at hand."""
    return python_of(environment(name)) if name in IPYKERNELS else interpreter(name)


@pytest.fixture(scope="module", params=[*IPYKERNELS, "3.9", "3.12", "3.13"])
def foreign(request: pytest.FixtureRequest, shared_tmp: Path) -> str:
    """The name of a kernelspec that starts a foreign interpreter."""
    argv = [foreign_python(request.param), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    # Nothing may be written there by the interpreter itself either, so that whatever is new is ours.
    kernelspec(shared_tmp / "data", f"foreign-{request.param}", argv, env={"PYTHONDONTWRITEBYTECODE": "1"})
    return f"foreign-{request.param}"


@pytest.fixture
def kernel(server: JupyterServer, backend: Backend, foreign: str) -> Iterator[str]:
    """A governed kernel of it."""
    made = server.start_kernel(name=foreign)
    backend.managed(made)
    yield made
    server.shut_down(made)
    backend.without(made)


def test_a_foreign_kernel_takes_turns_and_its_environment_stays_as_it_is(
    server: JupyterServer, backend: Backend, kernel: str
):
    python = Path(command_line(server.pid_of(kernel))[0])
    prefix = python.parents[1]
    before = files_of(prefix)
    with Talk(server, kernel) as talk:
        looked = talk.run(LOOKS)
        assert looked["status"] == "ok", looked
        outside, ours, items, found_prefix, path, inherited = ast.literal_eval(looked["stdout"])
        assert outside == "None /" and ours == [] and items == ["a", "b"]
        assert path == [] and inherited == os.environ.get("PYTHONPATH")
        assert Path(found_prefix) == prefix and not Path(found_prefix).is_relative_to(sys.prefix)
        assert talk.run(COMPUTES)["status"] == "ok"
        # The user's own startup configuration holds in this environment, too.
        assert talk.run("print(mine)")["stdout"] == "42\n"
    row = backend.session(kernel)
    assert row is not None and row["turns"] >= 1
    assert files_of(prefix) == before


@pytest.mark.parametrize("ipykernel", IPYKERNELS)
def test_pip_lists_nothing_of_ours_in_a_foreign_environment(ipykernel: str):
    listed = pip(environment(ipykernel), "list", "--format=freeze").lower()
    assert f"ipykernel=={ipykernel}" in listed
    assert "salus" not in listed and "jupyter_server" not in listed and "jupyter-server" not in listed


def test_a_foreign_kernel_that_was_killed_is_governed_again(server: JupyterServer, backend: Backend, shared_tmp: Path):
    argv = [python_of(environment(IPYKERNELS[0])), "-I", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernelspec(shared_tmp / "data", "foreign-isolated", argv)
    kernel_id = server.start_kernel(name="foreign-isolated")
    backend.managed(kernel_id)
    pid = server.pid_of(kernel_id)
    os.kill(pid, 9)
    server.pid_of(kernel_id, not_pid=pid)
    backend.managed(kernel_id, incarnation=2)
    with Talk(server, kernel_id) as talk:
        assert talk.run("print(1 + 1)")["stdout"] == "2\n"
    server.shut_down(kernel_id)
    backend.without(kernel_id)


def test_a_wrapper_whose_site_packages_are_read_only_is_governed(
    server: JupyterServer, backend: Backend, shared_tmp: Path
):
    """In a mount namespace of its own, in which neither that environment nor our package can be written."""
    ours = Path(__file__).parents[2] / "jupyter_salus"
    directory = environment(IPYKERNELS[1])
    mounts = " && ".join(f"mount --bind {one} {one} && mount -o remount,ro,bind {one}" for one in (directory, ours))
    if subprocess.run(["unshare", "-m", "sh", "-c", mounts], capture_output=True).returncode != 0:
        pytest.skip("a mount namespace of its own needs rights that this user hasn't")
    script = f'{mounts} && exec {python_of(directory)} -m ipykernel_launcher -f "$1"'
    kernelspec(
        shared_tmp / "data", "foreign-read-only", ["unshare", "-m", "sh", "-c", script, "sh", "{connection_file}"]
    )
    kernel_id = server.start_kernel(name="foreign-read-only")
    backend.managed(kernel_id)
    with Talk(server, kernel_id) as talk:
        writes = f"import os; print(os.access({str(directory)!r}, os.W_OK), os.access({str(ours)!r}, os.W_OK))"
        assert talk.run(writes)["stdout"] == "False False\n"
        assert talk.run(COMPUTES)["status"] == "ok"
    assert (backend.session(kernel_id) or {})["turns"] >= 1
    server.shut_down(kernel_id)
    backend.without(kernel_id)


def test_a_kernel_to_which_the_shim_doesnt_come_starts_all_the_same_and_is_offered_it(
    server: JupyterServer, backend: Backend, shared_tmp: Path
):
    """Its command line takes the extension, and something on the way drops PYTHONPATH, as `sudo` does."""
    python = python_of(environment(IPYKERNELS[1]))
    argv = ["env", "-u", "PYTHONPATH", python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernelspec(shared_tmp / "data", "foreign-without-shim", argv)
    kernel_id = server.start_kernel(name="foreign-without-shim")
    with Talk(server, kernel_id) as talk:
        assert talk.run("print(1 + 1)")["stdout"] == "2\n"
        backend.managed(kernel_id)
        assert talk.run(COMPUTES)["status"] == "ok"
    assert (backend.session(kernel_id) or {})["turns"] >= 1
    server.shut_down(kernel_id)
    backend.without(kernel_id)


def test_a_kernel_that_cannot_reach_our_files_is_shown_as_not_managed_with_why(
    server: JupyterServer, backend: Backend, shared_tmp: Path
):
    """As in a container: neither the environment nor the folder of the guest is there."""
    boot = BOOT_DIRECTORY
    hide = f"mount -t tmpfs none {boot}"
    if subprocess.run(["unshare", "-m", "sh", "-c", hide], capture_output=True).returncode != 0:
        pytest.skip("a mount namespace of its own needs rights that this user hasn't")
    python = python_of(environment(IPYKERNELS[1]))
    argv = ["unshare", "-m", "sh", "-c", f'{hide} && exec "$@"', "sh", python, "-m", "ipykernel_launcher"]
    kernelspec(shared_tmp / "data", "foreign-contained", [*argv, "-f", "{connection_file}"])
    kernel_id = server.start_kernel(name="foreign-contained")
    with Talk(server, kernel_id) as talk:
        assert talk.run("print(1 + 1)")["stdout"] == "2\n"
        why = backend.unmanaged(kernel_id)
        assert "never said hello" in why and "ModuleNotFoundError" in why, why
        assert talk.run(COMPUTES)["status"] == "ok"
    server.shut_down(kernel_id)
    backend.without(kernel_id)
