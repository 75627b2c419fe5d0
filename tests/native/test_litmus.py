"""No call slips past a shut gate: 10^7 rounds here, 10^8 in `benchmarks/guard_litmus.py`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jupyter_salus.native import build
from tests.native.world import PROGRAMS


@pytest.mark.parametrize("barrier", ["membarrier", "fence"])
def test_nothing_is_found_inside_of_a_shut_gate(compiled: object, barrier: str) -> None:
    gate = Path(build.__file__).parent / "guard" / "gate.c"
    program = compiled("litmus", [PROGRAMS / "litmus.c", gate], "-O2")  # type: ignore[operator]
    done = subprocess.run([program, "10000000", barrier], capture_output=True, text=True, timeout=60, check=True)
    rounds, shut, slipped, _ = map(int, done.stdout.split())
    assert rounds >= 10_000_000
    assert shut > 0
    assert slipped == 0
