"""A backend of its own for the commands, and the commands as a person calls them: a process each, or in this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from jupyter_salus.cli.own_backend import own_backend

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The socket of a backend on the host device, where the commands find it by themselves."""
    with own_backend(["--device=host"]) as socket:
        monkeypatch.setenv("JUPYTER_SALUS_SOCKET", socket)
        yield socket


@pytest.fixture
def salus(tmp_path: Path) -> Command:
    """`salus("status", "--json")`: the command's process, ended, with its output as text."""

    def call(*arguments: object, timeout: float = 100.0) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "jupyter_salus.cli", *map(str, arguments)]
        return subprocess.run(
            line, cwd=tmp_path, env=os.environ, text=True, capture_output=True, timeout=timeout, check=False
        )

    return call


@pytest.fixture
def notebook(tmp_path: Path) -> Callable[..., Path]:
    """`notebook("name", "cell", "cell")` writes one and returns its path."""

    def write(name: str, *cells: str) -> Path:
        path = tmp_path / f"{name}.ipynb"
        made = new_notebook(cells=[new_code_cell(cell) for cell in cells])
        made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(made, path)
        return path

    return write


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    """What a command printed with `--json`."""
    return json.loads(done.stdout)
