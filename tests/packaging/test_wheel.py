"""The wheel, installed: both extensions are there and on, and a JupyterLab started from it governs its kernels."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from .conftest import CLEAN, run

#: Two builds, a compiler's run and, with `make test-wheel`, an installation are in the first test's time.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE_S = 120.0


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


def lab_directory() -> dict[str, str]:
    """Where JupyterLab's own files are, if they are lent."""
    return {} if CLEAN else {"JUPYTERLAB_DIR": str(Path(sys.prefix) / "share" / "jupyter" / "lab")}


class Lab:
    """JupyterLab as a person starts it, from the environment with the wheel."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self._log = folder / "lab.log"
        self._runtime = folder / "runtime"
        self._runtime.mkdir(mode=0o700)
        line = [str(environment / "bin" / "python"), "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0"]
        line += [
            "--ServerApp.kernel_manager_class=jupyter_salus.Manager",
            "--IdentityProvider.token=",
            "--LabApp.news_url=",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*line, "--ServerApp.disable_check_xsrf=True", f"--ServerApp.root_dir={folder}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, "JUPYTER_RUNTIME_DIR": str(self._runtime), **lab_directory()},
            )
        self._address = ""

    def get(self, path: str) -> requests.Response:
        return requests.get(self._address + path, timeout=PATIENCE_S)

    def post(self, path: str) -> Any:
        return requests.post(self._address + path, timeout=PATIENCE_S).json()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for it; fails with the server's log."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            running = self._process.poll() is None
            assert running and time.monotonic() < deadline, f"waited until {what}: {self._log.read_text()}"
            time.sleep(0.1)

    def started(self) -> bool:
        """Whether it answers; finds its address in the file that it writes for that."""
        try:
            (info,) = self._runtime.glob("jpserver-*.json")
            self._address = json.loads(info.read_text())["url"]
            return self.get("api").ok
        except (ValueError, OSError):
            return False

    def end(self) -> None:
        backend = self.get("salus/api/state").json()["backend"]["pid"] if self._address else None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)
        if backend is not None:
            os.kill(backend, signal.SIGTERM)  # it would stay a minute for the next notebook


@pytest.fixture
def lab(environment: Path, short_tmp: Path) -> Iterator[Lab]:
    made = Lab(environment, short_tmp)
    try:
        made.until(made.started, "JupyterLab answers")
        yield made
    finally:
        made.end()


def test_jupyterlab_from_the_wheel_has_the_sidebar_and_governs_its_kernels(lab):
    page = lab.get("lab").text
    assert '"name": "jupyter-salus"' in page
    loaded = page.partition('"name": "jupyter-salus"')[0].rpartition('"load": "')[2].partition('"')[0]
    built = loaded or page.partition('"name": "jupyter-salus"')[2].partition('"load": "')[2].partition('"')[0]
    assert lab.get(f"lab/extensions/jupyter-salus/{built}").ok

    kernel = lab.post("api/kernels")["id"]

    def governed() -> bool:
        rows = {row["id"]: row for row in lab.get("salus/api/state").json()["sessions"]}
        return kernel in rows and rows[kernel]["managed"] and rows[kernel]["persistent_bytes"] is not None

    lab.until(governed, "the kernel is a session")
