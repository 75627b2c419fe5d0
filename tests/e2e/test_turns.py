"""Two notebooks' loops in one lane: by their own clocks they alternate, and one goes on when the other is killed."""

from __future__ import annotations

import os
import select
import signal
import time
from itertools import groupby, pairwise

import pytest

from tests.e2e.notebooks import PATIENCE_S, Notebook, alive, end_process, has_turns, until
from tests.e2e.timeline import timeline_at

pytestmark = pytest.mark.slow

#: Turns that each of the two has at least; one after the other that is twice as many alternations.
TURNS = 12


def between(notebook: Notebook, start: float, end: float) -> list[tuple[float, float, str]]:
    return [(a, b, notebook.name) for a, b in notebook.iterations if start <= a and b <= end]


async def test_by_their_own_clocks_two_loops_alternate_and_never_overlap_by_more_than_one_iteration(lane):
    first, second = await (await lane()).notebooks("first", "second")
    for one in (first, second):
        one.begin()
    # Before its first turn a cell runs its first moment without one; from its first turn on it is governed to its end.
    for one in (first, second):
        await has_turns(one, 1)
    start = time.monotonic()
    counts = {one.name: one.row["turns"] for one in (first, second)}
    for one in (first, second):
        await has_turns(one, counts[one.name] + TURNS)
    end = time.monotonic()

    iterations = sorted(between(first, start, end) + between(second, start, end))
    turns = [list(turn) for _, turn in groupby(iterations, key=lambda one: one[2])]
    assert len(turns) - 1 >= 20, f"{len(turns) - 1} alternations"
    for turn, following in pairwise(turns):
        begun = following[0][0]
        overlapping = [one for one in turn if one[1] > begun]
        assert len(overlapping) <= 1, f"{len(overlapping)} iterations of {turn[0][2]} ended after {begun}"
    lanes = {one.row["lane"] for one in (first, second)}
    assert len(lanes) == 1 and None not in lanes


async def test_when_a_kernel_is_killed_in_its_turn_the_other_goes_on_though_forked_workers_live(lane):
    backend = await lane()
    killed, other = await backend.notebooks("killed", "other")
    # The workers hold copies of all that the kernel had open; they would outlive the test by far.
    await killed.run(
        "workers = []\n"
        "for _ in range(2):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        time.sleep(600)\n"
        "        os._exit(0)\n"
        "    workers.append(pid)\n"
        "open(folder + '/workers', 'w').write(' '.join(map(str, workers)))"
    )
    workers = [int(pid) for pid in (killed._folder / "workers").read_text().split()]
    try:
        killed.begin(
            "sum(range(100_000))\n"
            "if os.path.exists(folder + '/long'): open(folder + '/in_turn', 'w').close(), sum(range(10**12))"
        )
        other.begin()
        for one in (killed, other):
            await has_turns(one, 2)
        killed.tell("long")
        await until(lambda: killed.told("in_turn"), "the kernel is in its turn, in an iteration without end")
        await until(lambda: other.row["state"] == "waiting", "the other waits for it")

        kernel = os.pidfd_open(killed.pid)
        at = time.monotonic()
        os.kill(killed.pid, signal.SIGKILL)
        select.select([kernel], [], [], PATIENCE_S)
        dead = time.monotonic()
        os.close(kernel)
        await until(lambda: [one for one in other.iterations if one[0] > at], "the other goes on")

        assert all(alive(pid) for pid in workers)
        await until(lambda: other.row["turn"] == "held", "the other has the turn")
        timeline = timeline_at(
            backend.journal, lambda made: made.granted_after(made.lost(killed.id) or dead) is not None
        )
        lost = timeline.lost(killed.id)
        assert lost is not None
        # Whoever waits for the end of the workers' copies waits for minutes. The backend may be kept from running for a
        # moment as well as this process was, which saw the end at `dead`; what it sees it answers at once.
        assert lost - dead < 1
        assert timeline.granted_after(lost) == lost
    finally:
        for pid in workers:
            end_process(pid)
