"""Worlds whose invariants are checked once more when the test is over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A world with one device, `gpu`, of 1000 MiB that moves sessions, under `fair`."""
    world = World(grows=False)
    world.device()
    yield world
    world.scheduler.check_invariants()


@pytest.fixture
def host() -> Iterator[World]:
    """A world with one device, `host`, of 1000 MiB that moves nothing and runs one at a time."""
    world = World(grows=False)
    world.device("host", moves=False, side_by_side=False)
    yield world
    world.scheduler.check_invariants()
