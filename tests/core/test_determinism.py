"""The same events at the same times give the same decisions, whatever the process and its hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from jupyter_salus.backend.core import events
from jupyter_salus.backend.core.policies import NAMES
from jupyter_salus.backend.core.scheduler import Scheduler

from .world import MIB, World

ROOT = Path(__file__).resolve().parents[2]
SIZES = [(100, 300), (300, 600), (5, 900), (200, 10), (50, 50)]


def lives(policy: str) -> World:
    """Half a minute of sessions that grow, are moved, crash and are asked for things."""
    world = World(seed=11, move_fails=0.2, move_late_s=0.3, checking=False)
    world.device()
    world.tell(events.PolicyChanged("gpu", policy))
    for number in range(8):
        persistent, ephemeral = SIZES[number % len(SIZES)]
        world.want(
            world.open(
                f"kernel-{number}",
                persistent=persistent,
                ephemeral=ephemeral,
                priority=("high", "normal", "low")[number % 3],
                profile=events.Profile(declared_s=5.0 * number) if number % 2 else None,
            )
        )
        world.run(0.7)
    world.crash(world.guests["kernel-3"])
    world.tell(events.PinChanged("kernel-2", True))
    world.tell(events.PriorityChanged("kernel-4", "high"))
    world.device(foreign_bytes=50 * MIB)
    world.run(25)
    return world


def fingerprint(policy: str) -> str:
    """What was decided and what is to be seen in the end, as one number."""
    world = lives(policy)
    return sha256(repr((world.story, world.scheduler.snapshot(world.now))).encode()).hexdigest()


@pytest.mark.parametrize("policy", NAMES)
def test_two_schedulers_that_are_told_the_same_decide_the_same(policy: str):
    first = lives(policy)
    assert len(first.story) > 100
    second = Scheduler(first.config)
    for now, event, decided in first.story:
        assert tuple(second.handle(event, now)) == decided
    assert second.snapshot(first.now) == first.scheduler.snapshot(first.now)
    assert second.next_deadline() == first.scheduler.next_deadline()
    assert second.ignored == first.scheduler.ignored


def test_looking_changes_nothing():
    first = lives("fair")
    second = Scheduler(first.config)
    for number, (now, event, decided) in enumerate(first.story):
        if number % 7 == 0:
            second.snapshot(now + 5.0)
            second.places()
            second.check_invariants()
        assert tuple(second.handle(event, now)) == decided


def test_hashes_of_another_process_change_no_decision():
    program = (
        "from tests.core.test_determinism import fingerprint; "
        f"print('\\n'.join(fingerprint(policy) for policy in {list(NAMES)!r}))"
    )
    here = "\n".join(fingerprint(policy) for policy in NAMES)
    for seed in ("0", "4711"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == here
