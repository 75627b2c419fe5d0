"""The pytest plugin: `fake_clock`, and `leak_check`, which fails a test that leaves descriptors, threads or processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .clock import FakeClock
from .leaks import holdings, left_behind


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that the test advances."""
    return FakeClock()


@pytest.fixture
def leak_check() -> Iterator[None]:
    """Compares what the test's process holds before and after; asked for by name, and first, so that it looks last."""
    before = holdings()
    yield
    left = left_behind(before)
    if left:
        pytest.fail(f"the test left behind: {', '.join(left)}")
