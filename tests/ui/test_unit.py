"""The TypeScript part on its own: its unit tests. Its types are checked by the build."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LABEXTENSION = Path(__file__).resolve().parents[2] / "jupyter_salus" / "labextension"


def run(script: str) -> None:
    """Run a script of package.json. Skips where Node or its packages aren't there, but not in CI."""
    lacking = None
    if shutil.which("node") is None:
        lacking = "no Node.js on the PATH"
    elif not (LABEXTENSION / "node_modules").exists():
        lacking = f"no {LABEXTENSION}/node_modules: `make labextension` installs them"
    if lacking is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(lacking)
        pytest.skip(lacking)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["jlpm", script],
        cwd=LABEXTENSION,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_model_wire_and_format_pass_their_unit_tests() -> None:
    run("test")
