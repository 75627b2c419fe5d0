"""Kernelspecs of the kinds that people have, and a person's own IPython configuration."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_WRAPPER = f"""#!/bin/sh
# Starts ipykernel by a file of its own, as cluster scripts and environment managers do.
exec {sys.executable} "$(dirname "$0")/start.py" -f "$1"
"""
_START = "from ipykernel.kernelapp import launch_new_instance\nlaunch_new_instance()\n"
_PROFILE = """
c.InteractiveShellApp.exec_lines = ["mine = 41 + 1"]
c.InteractiveShellApp.extensions = ["autoreload"]
"""


def kernelspec(data: Path, name: str, argv: list[str], language: str = "python", **more: object) -> Path:
    """Write a kernelspec into a data directory, and return its own directory."""
    made = data / "kernels" / name
    made.mkdir(parents=True, exist_ok=True)  # a test may run again
    spec = {"argv": argv, "display_name": name, "language": language, **more}
    (made / "kernel.json").write_text(json.dumps(spec))
    return made


def write_kernelspecs(data: Path) -> None:
    """`wrapped`, `isolated`, `messages` and `otherlang`."""
    wrapped = kernelspec(data, "wrapped", ["{resource_dir}/run.sh", "{connection_file}"])
    (wrapped / "run.sh").write_text(_WRAPPER)
    (wrapped / "run.sh").chmod(0o755)
    (wrapped / "start.py").write_text(_START)
    plain = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernelspec(data, "isolated", [plain[0], "-I", *plain[1:]])
    kernelspec(data, "messages", plain, interrupt_mode="message")
    other = kernelspec(data, "otherlang", [sys.executable, "{resource_dir}/start.py", "-f", "{connection_file}"], "sas")
    (other / "start.py").write_text(_START)


def write_profile(ipython: Path) -> None:
    """Lines to execute and an extension to load, as people have them."""
    profile = ipython / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text(_PROFILE)
