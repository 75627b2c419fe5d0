"""A bench for the tests of the simulator: traces written on the spot, every run's log checked."""

from __future__ import annotations

import pytest

from benchmarks.policies import Bench


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)
