"""Memory on the host device: figures that agree with /proc, and a kernel that has grown past the capacity."""

from __future__ import annotations

import pytest

from tests.e2e.notebooks import Notebook, has_turns, resident_bytes, until

pytestmark = pytest.mark.slow

MIB = 1 << 20


async def test_p_and_e_agree_with_proc(lane):
    (one,) = await (await lane()).notebooks("measured")
    await one.run(f"import jupyter_salus\nheld = b'x' * {100 * MIB}")
    # Long enough for the backend to look a few times while the scratch is there.
    one.begin(
        f"scratch = b'y' * {100 * MIB}\ntime.sleep(0.4)\ndel scratch\nsum(range(3_000_000))\njupyter_salus.boundary()"
    )
    await until(
        lambda: len(one.iterations) >= 3 and one.row["peak_ephemeral_bytes"] > 0, "a few iterations have passed"
    )
    one.tell("stop")
    await until(lambda: one.row["turn"] == "none", "the cell has ended")

    row = one.row
    assert row["persistent_bytes"] == pytest.approx(resident_bytes(one.pid), rel=0.1)
    assert row["peak_ephemeral_bytes"] == pytest.approx(100 * MIB, rel=0.1)


async def test_a_kernel_grown_past_the_capacity_waits_with_its_reason_while_another_runs(lane):
    backend = await lane("--capacity=200MiB")
    grown, other = await backend.notebooks("grown", "other")
    for one in (grown, other):
        one.begin(
            "sum(range(100_000))\n"
            f"if os.path.exists(folder + '/grow') and 'held' not in globals(): held = b'x' * {250 * MIB}"
        )
    for one in (grown, other):
        await has_turns(one, 2)

    grown.tell("grow")
    await until(lambda: grown.row["state"] == "waiting" and over(grown), "the grown one waits, with its reason")
    seen = len(other.iterations)
    await until(lambda: len(other.iterations) >= seen + 50, "the other runs on")
    assert grown.row["state"] == "waiting"

    # Nobody else can run: it goes on, and the state says so.
    other.tell("stop")
    seen = len(grown.iterations)
    await until(lambda: len(grown.iterations) >= seen + 10, "the grown one goes on alone")
    await until(lambda: grown.row["state"] == "running" and over(grown), "the state says that it is over the capacity")
    assert grown.row["persistent_bytes"] > 200 * MIB


def over(notebook: Notebook) -> bool:
    """Whether the state says of the session that more memory is held than there is."""
    reason = notebook.row["reason"]
    return reason is not None and reason["code"] == "over_capacity"
