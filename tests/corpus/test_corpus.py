"""Hundreds of steps of a front end, done with a plain kernel and with governed ones: what they say is the same.

With the newer ipykernel the corpus runs three times, side by side: without Salus, with it and alone, and with it while
somebody else wants the device all the time, so that turns are waited for and lost on the way. With the older one it runs
without and with Salus.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.corpus.cells import Step, read_corpus
from tests.corpus.conversation import Said
from tests.corpus.kernels import converse, kernel
from tests.corpus.sameness import Sameness
from tests.manager.environments import IPYKERNELS, environment, python_of
from tests.manager.running import PATIENCE_S, Backend

#: Files of the corpus that ask nothing of ipykernel that others don't.
OF_IPYTHON = ("02_magics", "06_displays")
#: A cell that wants the device again and again, and gives it back at each boundary when asked.
CONTENDS = """
import time
n = 0
while True:
    for _ in range(500_000): n += 1
    time.sleep(0.06)
"""


@pytest.fixture(scope="module")
def contended(module_tmp: Path) -> Iterator[Backend]:
    """The device that kernels contend for; the other backend's are alone on theirs but for one of another version."""
    made = Backend(module_tmp)
    yield made
    made.stop()


def test_the_corpus_has_hundreds_of_steps():
    steps = read_corpus()
    assert _cells(steps) >= 300 and all(_cells(_steps(ipykernel)) >= 200 for ipykernel in IPYKERNELS)
    assert len({step.name for step in steps}) == len(steps)


@pytest.mark.timeout(600)
async def test_replies_outputs_and_notebooks_are_as_without_salus_alone_and_contended(
    backend: Backend, contended: Backend, short_tmp: Path
):
    older, newer = IPYKERNELS
    folders = {name: short_tmp / name for name in ("older", "older-alone", "newer", "newer-alone", "newer-contended")}
    said = dict(
        zip(
            folders,
            await asyncio.gather(
                _plain(older, folders["older"]),
                _alone(older, folders["older-alone"], backend),
                _plain(newer, folders["newer"]),
                _alone(newer, folders["newer-alone"], backend),
                _contended(newer, folders["newer-contended"], contended),
            ),
            strict=True,
        )
    )
    for plain, governed in (("older", "older-alone"), ("newer", "newer-alone"), ("newer", "newer-contended")):
        faults = _differences(folders[plain], said[plain], folders[governed], said[governed])
        assert not faults, "\n".join([f"{plain} against {governed}", *faults])
        assert Sameness(folders[plain]).notebook(said[plain]) == Sameness(folders[governed]).notebook(said[governed])


def _differences(a: Path, plain: list[Said], b: Path, governed: list[Said]) -> list[str]:
    """What was said otherwise, step by step, in words."""
    first, second = Sameness(a), Sameness(b)
    faults: list[str] = []
    for one, other in zip(plain, governed, strict=True):
        without, along = first.step(one).splitlines(), second.step(other).splitlines()
        if without != along:
            faults.append(f"{one.step.name}:\n{one.step.code}")
            faults += list(difflib.unified_diff(without, along, "without", "with", n=2, lineterm=""))[:60]
    return faults


async def _plain(ipykernel: str, folder: Path) -> list[Said]:
    async with kernel(_python(ipykernel), folder, None) as manager:
        return await converse(manager, _version(ipykernel), _steps(ipykernel))


async def _alone(ipykernel: str, folder: Path, backend: Backend) -> list[Said]:
    async with kernel(_python(ipykernel), folder, backend.socket) as manager:
        said = await converse(manager, _version(ipykernel), _steps(ipykernel))
        row = backend.session(manager.kernel_id)
        assert row is not None and row["turns"] > 10, row
        return said


async def _contended(ipykernel: str, folder: Path, backend: Backend) -> list[Said]:
    python, other = _python(ipykernel), folder / "other"
    async with kernel(python, folder, backend.socket) as mine, kernel(python, other, backend.socket) as contender:
        client = contender.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=PATIENCE_S)
            client.execute(CONTENDS)
            said = await converse(mine, _version(ipykernel), _steps(ipykernel))
        finally:
            client.stop_channels()
        for id in (mine.kernel_id, contender.kernel_id):
            row = backend.session(id)
            assert row is not None and row["turns"] > 10 and row["waited_s"] > 0, row
        return said


def _steps(ipykernel: str) -> list[Step]:
    """What is done with this version."""
    steps = read_corpus()
    return steps if ipykernel == IPYKERNELS[1] else [one for one in steps if one.name.split()[0] not in OF_IPYTHON]


def _cells(steps: list[Step]) -> int:
    return len([step for step in steps if step.kind in ("execute", "queued", "stops")])


def _python(ipykernel: str) -> str:
    return python_of(environment(ipykernel))


def _version(ipykernel: str) -> tuple[int, ...]:
    return tuple(int(part) for part in ipykernel.split("."))
