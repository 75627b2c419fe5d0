"""Other interpreters: pyenv's, each with a small environment that has ipykernel and nothing of jupyter_salus."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

#: Versions that the guest supports beside the one that runs the tests.
VERSIONS = ("3.9", "3.10", "3.12", "3.13")
#: The person's real home: HOME is another one during a test run.
_HOME = Path(pwd.getpwuid(os.getuid()).pw_dir)
_CACHE = Path(os.environ.get("JUPYTER_SALUS_TEST_ENVS", str(_HOME / ".cache" / "jupyter-salus-tests")))


def interpreter(version: str) -> str:
    """A Python of this version that has ipykernel; made once and kept. Skips the test where it can't be had."""
    python = _CACHE / f"py{version}" / "bin" / "python"
    if not _has_ipykernel(python):
        found = sorted((_HOME / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
        if not found:
            pytest.skip(f"no Python {version} under ~/.pyenv/versions")
        _CACHE.mkdir(parents=True, exist_ok=True)
        made = subprocess.run([str(found[-1]), "-m", "venv", "--clear", str(python.parents[1])], capture_output=True)
        if made.returncode == 0:
            install = [str(python), "-m", "pip", "install", "--quiet", "ipykernel"]
            made = subprocess.run(install, capture_output=True, timeout=100)
        if made.returncode != 0:
            pytest.skip(f"no ipykernel for Python {version}: {made.stderr.decode(errors='replace')[-200:]}")
    return str(python)


def _has_ipykernel(python: Path) -> bool:
    if not python.exists():
        return False
    return subprocess.run([str(python), "-c", "import ipykernel"], capture_output=True).returncode == 0
