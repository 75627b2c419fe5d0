"""The wheel, installed: both extensions are there and on, and a JupyterLab started from it governs its kernels."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from .conftest import run
from .serving import Server, lab_directory

#: Two builds, a compiler's run and, with `make test-wheel`, an installation are in the first test's time.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_wheel_has_the_built_extension_and_nothing_that_made_it(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    shared = next(name for name in names if name.endswith("labextensions/jupyter-salus/install.json")).rpartition("/")[
        0
    ]
    assert f"{shared}/package.json" in names
    assert any(name.startswith(f"{shared}/static/remoteEntry.") for name in names)
    assert any(name.endswith("etc/jupyter/jupyter_server_config.d/jupyter_salus.json") for name in names)
    assert "jupyter_salus/py.typed" in names
    assert len(names) == len(set(names))
    for unwanted in ("node_modules", ".yarn", "labextension/src/", "tests/", "tsconfig"):
        assert [name for name in names if unwanted in name] == []


@pytest.mark.skipif(
    sys.platform != "linux" or not (shutil.which("cc") or shutil.which("gcc")), reason="there is no C compiler"
)
def test_the_wheel_carries_the_guard_and_says_for_which_platform(wheel):
    assert "jupyter_salus/native/libsalus_guard.so" in zipfile.ZipFile(wheel).namelist()
    assert wheel.name.rpartition("-")[2].startswith("linux_")


def test_both_extensions_are_listed_and_doctor_has_no_problem(environment, tmp_path):
    python = environment / "bin" / "python"
    place = run(python, "-c", "import jupyter_salus; print(jupyter_salus.__file__)", cwd=tmp_path).stdout
    assert place.startswith(str(environment))
    listed = plain(run(python, "-m", "jupyter_server.extension.serverextension", "list", cwd=tmp_path))
    assert any(line.split()[:2] == ["jupyter_salus", "enabled"] for line in listed)
    listed = plain(run(python, "-m", "jupyterlab.labextensions", "list", cwd=tmp_path, **lab_directory()))
    (line,) = [one for one in listed if "jupyter-salus v" in one]
    assert "enabled" in line and "OK" in line and "(python, jupyter_salus)" in line
    told = json.loads(run(environment / "bin" / "jupyter-salus", "doctor", "--json", cwd=tmp_path).stdout)
    assert [one for one in told["findings"] if one["level"] == "problem"] == []


def plain(done: subprocess.CompletedProcess[str]) -> list[str]:
    """All lines of a command's outputs, without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr).splitlines()


def test_run_from_the_wheel_gives_a_notebook_its_turns(environment, tmp_path):
    notebook = new_notebook(cells=[new_code_cell("n = 0\nwhile n < 3_000_000: n += 1\nn")])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, tmp_path / "loop.ipynb")
    done = run(environment / "bin" / "jupyter-salus", "run", "--device=host", "--json", "loop.ipynb", cwd=tmp_path)
    (one,) = json.loads(done.stdout)["notebooks"]
    assert (one["status"], one["memory_mode"]) == ("done", "host")
    assert one["turns"] >= 1


def test_jupyterlab_from_the_wheel_has_the_sidebar_and_governs_its_kernels(environment, short_tmp):
    with Server(environment, short_tmp, "jupyterlab") as lab:
        assert lab.get(f"lab/extensions/jupyter-salus/{lab.remote_entry('lab')}").ok
        kernel = lab.post("api/kernels")["id"]
        lab.until(lambda: lab.governs(kernel), "the kernel is a session")
