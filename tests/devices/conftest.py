"""The stand-in's GPUs for the tests of devices: a backend asks them through the same library as real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.native.conftest import built
from tests.native.world import World

__all__ = ["built"]

#: What is asked of `device` in a process that has the stand-in as its library; arguments: kind of device, expression.
ASK = """
import dataclasses, json, sys
from jupyter_salus.backend.devices.choice import choose
from jupyter_salus.backend.devices.size import parse_bytes as size
from jupyter_salus.errors import SalusError
try:
    choice = choose("cuda", *json.loads(sys.argv[1]))
    devices, device = choice.devices, choice.devices[0]
    print(json.dumps(eval(sys.argv[2]), default=dataclasses.asdict))
except SalusError as error:
    print(json.dumps({"code": error.code, "message": error.message}))
"""

Ask = Callable[..., Any]


@pytest.fixture
def gpus(built: Path, short_tmp: Path) -> Iterator[World]:
    """Stand-in GPUs, one of 256 MiB unless the environment of their first use says otherwise."""
    made = World(built, short_tmp, real=False)
    yield made
    made.stop()


@pytest.fixture
def ask(gpus: World) -> Ask:
    """`ask(expression, capacity, reserve, **environment)`: its value in a process that governs the stand-in's GPUs."""

    def asked(expression: str, *limits: int | None, **environment: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", ASK, json.dumps(limits), expression],
            env={**os.environ, **gpus.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return asked
