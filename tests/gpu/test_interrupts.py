"""Ctrl-C ends every wait for the device, and no call of the framework fails because of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.gpu.machine import Backend, Kernel, Machine, until

#: A device on which a foreign process of 24 MiB leaves too little for a request of 28 MiB, and enough for its contexts.
CAPACITY_MIB = 72


@pytest.fixture(scope="module")
def machine(machines: Callable[..., Machine]) -> Machine:
    return machines(capacity_mib=CAPACITY_MIB)


@pytest.fixture(scope="module")
def backend(machine: Machine) -> Backend:
    # One at a time, so that who waits does so for whoever has the turn.
    return machine.backend(lanes="one")


@pytest.fixture(scope="module")
def pair(machine: Machine, backend: Backend) -> tuple[Kernel, Kernel]:
    made = machine.kernel("holder.ipynb"), machine.kernel("waiter.ipynb")
    for kernel in made:
        kernel.run("import tinyframe as t; x = t.Tensor(4, 3); s = x.digest()")
    return made


@pytest.fixture
def holder(machine: Machine, backend: Backend, pair: tuple[Kernel, Kernel]) -> Iterator[Kernel]:
    """The first notebook keeps its turn: what it launched isn't done before the test is."""
    holder, _ = pair
    release = machine.directory / "release"
    release.unlink(missing_ok=True)
    cell = holder.begin(f"t.hold({str(release)!r}); t.synchronize(); s = x.digest()", "s")
    backend.until(holder, state="running")
    yield holder
    release.touch()
    assert len(holder.value(cell)) == 16


def test_a_cell_that_waits_at_the_gate_ends_and_the_same_cell_runs_afterwards(
    backend: Backend, holder: Kernel, pair: tuple[Kernel, Kernel]
) -> None:
    _, waiter = pair
    cell = waiter.begin("while True: x.mix(); t.synchronize()")
    backend.until(waiter, turn="wanted")
    waiter.interrupt()
    reply = cell.wait()
    assert reply["ename"] == "KeyboardInterrupt", reply
    # It waits for nothing any more, and the holder has its turn still.
    backend.until(waiter, reason=None)
    assert backend.session(holder)["turn"] in ("held", "revoked")


def test_after_that_the_same_notebook_goes_on(pair: tuple[Kernel, Kernel]) -> None:
    _, waiter = pair
    assert waiter.run("s = x.mix().digest()", "len(s)") == 16


def test_a_wait_for_room_ends_as_keyboard_interrupt_or_well_when_the_other_process_goes(
    machine: Machine, backend: Backend, pair: tuple[Kernel, Kernel]
) -> None:
    _, waiter = pair
    before = waiter.run("s = x.digest()", "s")
    foreign = machine.process(
        "import tinyframe as t; x = t.Tensor(24, 1); t.synchronize(); print('taken', flush=True); input()"
    )
    try:
        assert foreign.stdout and foreign.stdout.readline() == "taken\n"
        for interrupted in (True, False):
            cell = waiter.begin("z = t.Tensor(28, 1); s = z.digest()", "len(s)")
            until(
                lambda: "processes outside use" in ((backend.session(waiter)["reason"] or {}).get("text") or ""),
                "the wait",
            )
            if interrupted:
                waiter.interrupt()
                assert cell.wait()["ename"] == "KeyboardInterrupt"
                assert waiter.run("s = x.digest()", "s") == before
    finally:
        foreign.communicate("\n")
    assert waiter.value(cell) == 16
    assert waiter.run("z = None; s = x.digest()", "s") == before
