"""Hundreds of steps of a front end, done with a plain kernel and with one that is governed: what they say is the same.

With the older ipykernel every second file's steps share the device with somebody who always wants it, with the newer one
the others' do; so each step is done with the device alone and with turns that are waited for and lost on the way.
"""

from __future__ import annotations

import asyncio
import difflib
from pathlib import Path

import pytest

from tests.corpus.cells import Step, read_corpus
from tests.corpus.conversation import Said
from tests.corpus.kernels import converse, kernel
from tests.corpus.sameness import Sameness
from tests.manager.environments import IPYKERNELS, environment, python_of
from tests.manager.running import PATIENCE_S, Backend

#: A cell that wants the device all the time, unless the file is there, and gives it back at each boundary when asked.
CONTENDS = """
import os, time
n = 0
while True:
    for _ in range(0 if os.path.exists("pause") else 500_000): n += 1
    time.sleep(0.03)
"""


def test_the_corpus_has_hundreds_of_steps():
    steps = read_corpus()
    assert len([step for step in steps if step.kind in ("execute", "queued", "stops")]) >= 300
    assert len({step.name for step in steps}) == len(steps)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("ipykernel", "contended"), [(IPYKERNELS[0], 0), (IPYKERNELS[1], 1)])
async def test_replies_outputs_and_notebooks_are_as_without_salus(
    ipykernel: str, contended: int, backend: Backend, short_tmp: Path
):
    python = python_of(environment(ipykernel))
    version = tuple(int(part) for part in ipykernel.split("."))
    a, b = short_tmp / "a", short_tmp / "b"
    plain, governed = await asyncio.gather(
        _plain(python, version, a), _governed(python, version, b, backend, contended)
    )
    first, second = Sameness(a), Sameness(b)
    faults = []
    for one, other in zip(plain, governed, strict=True):
        without, along = first.step(one).splitlines(), second.step(other).splitlines()
        if without != along:
            faults.append(f"{one.step.name}:\n{one.step.code}")
            faults += list(difflib.unified_diff(without, along, "without", "with", n=2, lineterm=""))[:60]
    assert not faults, "\n".join(faults)
    assert Sameness(a).notebook(plain) == Sameness(b).notebook(governed)


async def _plain(python: str, version: tuple[int, ...], folder: Path) -> list[Said]:
    async with kernel(python, folder, None) as manager:
        return await converse(manager, version, read_corpus())


async def _governed(
    python: str, version: tuple[int, ...], folder: Path, backend: Backend, contended: int
) -> list[Said]:
    other = folder / "other"
    pause = other / "work" / "pause"

    def before(step: Step) -> None:
        if int(step.name[:2]) % 2 == contended:
            pause.unlink(missing_ok=True)
        else:
            pause.touch()

    async with kernel(python, folder, backend.socket) as mine, kernel(python, other, backend.socket) as contender:
        client = contender.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=PATIENCE_S)
            client.execute(CONTENDS)
            said = await converse(mine, version, read_corpus(), before)
        finally:
            client.stop_channels()
        for id in (mine.kernel_id, contender.kernel_id):
            row = backend.session(id)
            assert row is not None and row["turns"] > 10 and row["waited_s"] > 0, row
        return said
