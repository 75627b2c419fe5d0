"""The guided notebook, run beside a real server whose kernels it starts and watches."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys

import nbformat
import pytest

from tests.e2e.notebooks import parameters
from tests.e2e.test_examples import EXAMPLES
from tests.manager.running import Backend, JupyterServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="the examples need their packages"),
]


@pytest.mark.timeout(300)  # six processes, two of which compute all the time
def test_the_story_starts_two_trainings_that_share_and_ends_them(short_tmp, tmp_path):
    shutil.copy(EXAMPLES / "story.ipynb", tmp_path)
    parameters(tmp_path / "story.ipynb", SECONDS=2.0)
    backend = Backend(short_tmp)
    try:
        server = JupyterServer(short_tmp, [], {"JUPYTER_SALUS_SOCKET": backend.socket}).wait()
        try:
            line = [sys.executable, "-m", "jupyter_salus.cli", "run", "--socket", backend.socket, "--output-dir", "out"]
            # The runtime directory is the server's, so that the notebook finds it; plots go into the notebook.
            environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
            done = subprocess.run(
                [*line, "story.ipynb"],
                cwd=tmp_path,
                env={**environment, "JUPYTER_RUNTIME_DIR": str(server.runtime)},
                capture_output=True,
                text=True,
                timeout=280,
                check=False,
            )
        finally:
            server.stop()
    finally:
        backend.stop()
    assert done.returncode == 0, done.stdout + done.stderr
    executed = nbformat.read(tmp_path / "out" / "story.ipynb", as_version=4)
    texts = "".join(output.get("text", "") for cell in executed.cells for output in cell.get("outputs", []))
    assert "morning.ipynb" in texts
    assert "beside two trainings" in texts
    assert (
        sum("image/png" in output.get("data", {}) for cell in executed.cells for output in cell.get("outputs", [])) == 2
    )
