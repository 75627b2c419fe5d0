"""Jupyter servers started from the environment with the wheel."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from .conftest import CLEAN, LOWEST

PATIENCE_S = 120.0


def lab_directory() -> dict[str, str]:
    """Where JupyterLab's own files are, if they are lent."""
    return {} if CLEAN or LOWEST else {"JUPYTERLAB_DIR": str(Path(sys.prefix) / "share" / "jupyter" / "lab")}


def _free_port() -> int:
    """Not 0: older servers say in their file that this is their port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class Server:
    """A Jupyter server as a person starts it, from the environment with the wheel; `module` is `jupyterlab` or `notebook`.

    Entered by `with`, and ended with its backend.
    """

    def __init__(self, environment: Path, folder: Path, module: str, **variables: str) -> None:
        self._log = folder / "server.log"
        self._runtime = folder / "runtime"
        for name in ("runtime", "data", "config"):
            (folder / name).mkdir(mode=0o700)
        self.root = folder / "notebooks"
        self.root.mkdir()
        line = [
            str(environment / "bin" / "python"),
            "-m",
            module,
            "--no-browser",
            "--allow-root",
            f"--port={_free_port()}",
        ]
        line += [
            "--ServerApp.kernel_manager_class=jupyter_salus.Manager",
            "--IdentityProvider.token=",
            "--LabApp.news_url=",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*line, "--ServerApp.disable_check_xsrf=True", f"--ServerApp.root_dir={self.root}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={
                    **os.environ,
                    "JUPYTER_RUNTIME_DIR": str(self._runtime),
                    "JUPYTER_DATA_DIR": str(folder / "data"),
                    "JUPYTER_CONFIG_DIR": str(folder / "config"),
                    **lab_directory(),
                    **variables,
                },
            )
        self._address = ""

    def __enter__(self) -> Server:
        try:
            self.until(self._started, "it answers")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self._end()

    def get(self, path: str) -> requests.Response:
        return requests.get(self._address + path, timeout=PATIENCE_S)

    def post(self, path: str, **body: Any) -> Any:
        answer = requests.post(self._address + path, json=body or None, timeout=PATIENCE_S)
        assert answer.ok, answer.text
        return answer.json()

    def sessions(self) -> dict[str, dict[str, Any]]:
        """The rows of the state by their ids."""
        return {row["id"]: row for row in self.get("salus/api/state").json()["sessions"]}

    def governs(self, kernel: str) -> bool:
        """Whether the guest in this kernel has come to the backend."""
        row = self.sessions().get(kernel)
        return row is not None and row["managed"] and row["persistent_bytes"] is not None

    def remote_entry(self, page: str) -> str:
        """The file by which this page loads the sidebar."""
        found = re.search(r"\{[^{}]*\"name\": \"jupyter-salus\"[^{}]*\}", self.get(page).text)
        assert found is not None, f"{page} loads no jupyter-salus"
        entry = json.loads(found[0])["load"]
        assert isinstance(entry, str)
        return entry

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for it; fails with the server's log."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            running = self._process.poll() is None
            assert running and time.monotonic() < deadline, f"waited until {what}: {self._log.read_text()}"
            time.sleep(0.1)

    def _started(self) -> bool:
        """Whether it answers; finds its address in the file that it writes for that."""
        try:
            (info,) = self._runtime.glob("jpserver-*.json")
            self._address = json.loads(info.read_text())["url"]
            return self.get("api").ok
        except (ValueError, OSError):
            return False

    def _end(self) -> None:
        try:
            backend = self.get("salus/api/state").json()["backend"]["pid"] if self._address else None
        except requests.RequestException:
            backend = None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)
        if backend is not None:
            os.kill(backend, signal.SIGTERM)  # it would stay a minute for the next notebook
