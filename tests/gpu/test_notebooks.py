"""Notebooks on a GPU: nobody's bytes are lost when they take turns, move out and come back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gpu.machine import MIB, Backend, Kernel, Machine, until

#: A context of the stand-in.
CONTEXT = 8 * MIB


@pytest.fixture(scope="module")
def machine(machines: Callable[..., Machine]) -> Machine:
    return machines(capacity_mib=96)


@pytest.fixture(scope="module")
def backend(machine: Machine) -> Backend:
    return machine.backend()


@pytest.fixture(scope="module")
def pair(machine: Machine, backend: Backend) -> Iterator[tuple[Kernel, Kernel]]:
    """Two notebooks, which hold nothing when a test begins."""
    made = machine.kernel("a.ipynb"), machine.kernel("b.ipynb")
    for kernel in made:
        kernel.run("import tinyframe as t")
    yield made


@pytest.fixture(autouse=True)
def nothing_held(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "pair" in request.fixturenames:
        for kernel in request.getfixturevalue("pair"):
            kernel.run("x = y = None")


def test_a_kernel_that_never_touches_the_device_has_nothing_and_waits_for_nothing(
    machine: Machine, backend: Backend, pair: tuple[Kernel, Kernel]
) -> None:
    third = machine.kernel("host-only.ipynb")
    assert third.run("total = sum(range(10**6))", "total") == sum(range(10**6))
    assert backend.session(third)["state"] == "none"
    assert machine.used_by(third.pid) == 0
    machine.drop(third)


def test_an_idle_notebooks_memory_moves_out_and_is_back_at_its_next_touch(
    machine: Machine, backend: Backend, pair: tuple[Kernel, Kernel]
) -> None:
    first, _ = pair
    before = first.run("x = t.Tensor(20, 5).mix(3); y = t.Tensor(3, 6); s = x.digest(), y.digest(), x.address", "s")
    backend.until(first, state="holding")
    held = machine.used_by(first.pid)
    backend.act("evict", first)
    backend.until(first, state="evicted")
    assert held - machine.used_by(first.pid) == 24 * MIB
    assert machine.used_by(first.pid) == CONTEXT
    # The cell knows nothing of it.
    assert first.run("s = x.digest(), y.digest(), x.address", "s") == before
    assert machine.used_by(first.pid) == held
    assert backend.session(first)["evictions"] == 1


def test_host_work_brings_nothing_back(machine: Machine, backend: Backend, pair: tuple[Kernel, Kernel]) -> None:
    first, _ = pair
    first.run("x = t.Tensor(16, 5); s = x.digest()")
    backend.act("evict", first)
    backend.until(first, state="evicted")
    assert first.run("n = sum(range(10**5))", "n") == sum(range(10**5))
    assert backend.session(first)["state"] == "evicted"
    # A free needs no turn either.
    assert first.run("x.free()", "t.guard_state()['evicted_bytes']") == 0


def test_a_notebook_that_grows_gets_the_room_of_one_that_is_idle(
    machine: Machine, backend: Backend, pair: tuple[Kernel, Kernel]
) -> None:
    first, second = pair
    before = first.run("x = t.Tensor(36, 5).mix(); s = x.digest()", "s")
    backend.until(first, state="holding")
    grown = second.run("x = t.Tensor(48, 9).mix(); s = x.digest()", "s")
    assert backend.session(first)["state"] == "evicted"
    assert first.run("s = x.digest()", "s") == before
    assert second.run("s = x.digest()", "s") == grown


def test_two_trainings_at_once_end_as_they_do_alone(
    machine: Machine, backend: Backend, pair: tuple[Kernel, Kernel]
) -> None:
    first, second = pair
    alone = first.run("s = t.train(20, mib=4)", "s")
    cells = [kernel.begin("s = t.train(40, mib=4, scratch_mib=8)", "s") for kernel in pair]
    both = {kernel.value(cell) for kernel, cell in zip(pair, cells, strict=True)}
    assert both == {first.run("s = t.train(40, mib=4)", "s")}
    assert second.run("s = t.train(20, mib=4)", "s") == alone


def test_more_than_the_device_could_ever_give_is_the_frameworks_own_error(
    backend: Backend, pair: tuple[Kernel, Kernel]
) -> None:
    first, _ = pair
    reply = first.begin("t.Tensor(1000)").wait()
    assert reply["ename"] == "OutOfMemoryError"
    assert first.run("x = t.Tensor(8, 1); s = x.digest()", "len(s)") == 16


def test_a_program_started_from_a_cell_belongs_to_the_notebooks_session(
    machine: Machine, backend: Backend, pair: tuple[Kernel, Kernel], tmp_path: Path
) -> None:
    first, second = pair
    seen = tmp_path / "seen"
    program = tmp_path / "child.py"
    program.write_text(
        "import os, time, tinyframe as t\n"
        "x = t.Tensor(24, 2)\n"
        "print(x.digest(), os.environ.get('JUPYTER_SALUS_TOKEN'))\n"
        f"while not os.path.exists({str(seen)!r}): time.sleep(0.02)\n"
    )
    first.run("x = t.Tensor(16, 5); s = x.digest()")
    cell = first.begin(f"out = !{sys.executable} {program}", "list(out)")

    def held() -> int:
        row = backend.session(first)
        return row["persistent_bytes"] + row["ephemeral_bytes"]

    until(lambda: held() >= 40 * MIB + 2 * CONTEXT, "the child's memory in its session")
    assert len(backend.state()["sessions"]) == 2
    seen.touch()
    digest, token = first.value(cell)[0].split()
    assert token == "None"
    until(lambda: backend.session(first)["persistent_bytes"] == 16 * MIB + CONTEXT, "the child's memory to be free")
    assert second.run("x = t.Tensor(24, 2); s = x.digest()", "s") == digest


def test_a_kernel_that_no_guest_can_enter_is_governed_by_the_guard_alone(machine: Machine, backend: Backend) -> None:
    kernel = machine.kernel("other.sas", spec=machine.kernelspec("guardonly", language="sas"))
    before = kernel.run("import tinyframe as t; x = t.Tensor(16, 5).mix(); s = x.digest()", "s")
    row = backend.until(kernel, state="holding")
    assert row["managed"]
    assert row["memory_mode"] == "blocks"
    backend.act("evict", kernel)
    backend.until(kernel, state="evicted")
    assert kernel.run("s = x.digest()", "s") == before
    machine.drop(kernel)
