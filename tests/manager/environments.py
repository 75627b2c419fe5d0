"""Environments that aren't ours: this interpreter, with one version of ipykernel and nothing of jupyter_salus.

Made once by pip and kept beside those of other interpreters; without pip in them, which halves the time.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

#: The person's real home: HOME is another one during a test run.
_HOME = Path(pwd.getpwuid(os.getuid()).pw_dir)
_CACHE = Path(os.environ.get("JUPYTER_SALUS_TEST_ENVS", str(_HOME / ".cache" / "jupyter-salus-tests")))
#: What pip may take on a loaded machine, in seconds.
_PATIENCE_S = 300

#: In the environment: that environments may be made that most runs do without. Read before the tests' own environment is set.
COMPANIONS = "JUPYTER_SALUS_TEST_COMPANIONS"
_MAY_MAKE = bool(os.environ.get(COMPANIONS))

#: The oldest and the newest ipykernel that the guest is tested with.
IPYKERNELS = ("6.30.1", "7.4.0")


def environment(ipykernel: str) -> Path:
    """The directory of a virtual environment with this version of ipykernel."""
    directory = _CACHE / f"py{sys.version_info.major}.{sys.version_info.minor}-ipykernel{ipykernel}"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at the same time make it once
        if not (directory / "complete").exists():
            _run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(directory)])
            pip(directory, "install", "--quiet", "--no-compile", f"ipykernel=={ipykernel}")
            (directory / "complete").touch()
    return directory


def beside_ours(name: str, *packages: str) -> Path:
    """A virtual environment with these packages on top of all that this interpreter has.

    Made where JUPYTER_SALUS_TEST_COMPANIONS is set, since it brings much that nothing else needs; used wherever it is.
    """
    directory = _CACHE / f"py{sys.version_info.major}.{sys.version_info.minor}-{name}"
    if not (directory / "complete").exists():
        if not _MAY_MAKE:
            pytest.skip(f"there is no {directory}; with {COMPANIONS}=1 it is made")
        _run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(directory)])
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        ours = directory / "lib" / version / "site-packages" / "ours.pth"
        ours.write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        pip(directory, "install", "--quiet", "--no-compile", *packages)
        (directory / "complete").touch()
    return directory


def python_of(directory: Path) -> str:
    """The interpreter of a virtual environment."""
    return str(directory / "bin" / "python")


def pip(directory: Path, *arguments: str) -> str:
    """What pip prints for this environment. Raises what it says when it fails."""
    options = ["--disable-pip-version-check", "--no-input"]
    return _run([sys.executable, "-m", "pip", "--python", python_of(directory), *options, *arguments])


def _run(command: list[str]) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, env=inherited)
    if done.returncode != 0:
        raise RuntimeError(f"cannot run {' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout
