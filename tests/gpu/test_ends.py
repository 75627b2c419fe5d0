"""A kernel or a backend that ends takes nothing with it: bytes are free, others go on, the next one knows the truth."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.gpu.machine import MIB, Backend, Kernel, Machine, until


@pytest.fixture(scope="module")
def machine(machines: Callable[..., Machine]) -> Machine:
    return machines(capacity_mib=96)


@pytest.fixture(scope="module")
def backend(machine: Machine) -> Backend:
    # One at a time, so that who waits does so for whoever has the turn.
    return machine.backend(lanes="one")


@pytest.fixture(scope="module")
def other(machine: Machine, backend: Backend) -> Kernel:
    """A notebook that is there throughout, and holds something."""
    kernel = machine.kernel("other.ipynb")
    kernel.run("import tinyframe as t; x = t.Tensor(8, 1); before = x.digest()")
    return kernel


@pytest.fixture
def busy(machine: Machine, backend: Backend, other: Kernel) -> Iterator[None]:
    """It has the turn for as long as the test is."""
    release = machine.directory / "release"
    release.unlink(missing_ok=True)
    cell = other.begin(f"t.hold({str(release)!r}); t.synchronize(); s = x.digest()", "s == before")
    backend.until(other, turn="held")
    yield
    release.touch()
    assert other.value(cell)


def bring(backend: Backend, kernel: Kernel, state: str) -> None:
    """A notebook that holds memory into this state; one that moves there stands still in the midst of it."""
    backend.until(kernel, state="holding")
    if state in ("evicted", "returning"):
        backend.act("evict", kernel)
        backend.until(kernel, state="evicted")
    if state in ("evicting", "returning"):
        # Its guard hears the order and does nothing.
        os.kill(kernel.pid, signal.SIGSTOP)
        backend.act("evict" if state == "evicting" else "restore", kernel)
        backend.until(kernel, state="evicting" if state == "evicting" else "restoring")


@pytest.mark.parametrize("state", ["holding", "evicting", "evicted", "returning"])
def test_a_killed_kernels_bytes_are_free_and_the_other_goes_on(
    machine: Machine, backend: Backend, other: Kernel, state: str
) -> None:
    used = machine.used()
    killed = machine.kernel("killed.ipynb")
    killed.run("import tinyframe as t; x = t.Tensor(24, 5); s = x.digest()")
    bring(backend, killed, state)
    killed.kill()
    until(lambda: machine.used() == used, "the bytes of the kernel to be free")
    until(lambda: backend.session(killed).get("persistent_bytes", 0) == 0, "the books to say so")
    assert other.run("s = x.digest()", "s == before")
    machine.drop(killed)


def test_a_kernel_killed_at_the_gate_waits_no_more_and_the_holder_goes_on(
    machine: Machine, backend: Backend, other: Kernel, busy: None
) -> None:
    used = machine.used()
    killed = machine.kernel("killed.ipynb")
    killed.begin("import tinyframe as t; x = t.Tensor(24, 5)")
    backend.until(killed, turn="wanted")
    killed.kill()
    until(lambda: backend.session(killed).get("turn", "none") == "none", "the wait to be over")
    until(lambda: machine.used() == used, "the bytes of the kernel to be free")
    assert backend.session(other)["turn"] in ("held", "revoked")
    machine.drop(killed)


def test_a_kernel_restarted_while_its_memory_is_out_begins_anew(machine: Machine, backend: Backend) -> None:
    kernel = machine.kernel("again.ipynb")
    kernel.run("import tinyframe as t; x = t.Tensor(24, 5); s = x.digest()")
    backend.until(kernel, state="holding")
    backend.act("evict", kernel)
    backend.until(kernel, state="evicted")
    kernel.restart()
    assert kernel.run("import tinyframe as t; y = t.Tensor(24, 6); s = y.digest()", "'x' in globals()") is False
    assert machine.used_by(kernel.pid) == 32 * MIB
    machine.drop(kernel)


def test_a_backend_that_is_killed_stops_no_kernel_and_the_next_one_knows_what_is_held(
    machines: Callable[..., Machine],
) -> None:
    machine = machines(capacity_mib=96)
    backend = machine.backend(lanes="one")
    other = machine.kernel("other.ipynb")
    kernel = machine.kernel("survivor.ipynb", JUPYTER_SALUS_PATIENCE_S="1")
    other.run("import tinyframe as t; x = t.Tensor(8, 1); before = x.digest()")
    kernel.run("import tinyframe as t; x = t.Tensor(24, 5); before = x.digest()")
    for state in ("holding", "waiting", "evicting", "evicted", "returning"):
        release = machine.directory / f"release-{state}"
        cells = []
        if state == "waiting":
            cells.append((other, other.begin(f"t.hold({str(release)!r}); t.synchronize()", "x.digest() == before")))
            backend.until(other, turn="held")
            cells.append((kernel, kernel.begin("s = x.digest()", "s == before")))
            backend.until(kernel, turn="wanted")
        else:
            bring(backend, kernel, state)
        backend.kill()
        if state in ("evicting", "returning"):
            os.kill(kernel.pid, signal.SIGCONT)
        elif state == "holding":
            # Nobody answers: after a second its guard opens the gate.
            assert kernel.run("s = x.digest()", "s == before"), state
        backend.start()
        until(lambda: backend.session(kernel).get("persistent_bytes", 0) >= 24 * MIB, f"it to be known, {state}")
        release.touch()
        for one, cell in cells:
            assert one.value(cell), state
        assert kernel.run("s = x.digest()", "s == before"), state
        assert other.run("s = x.digest()", "s == before"), state
        backend.until(kernel, state="holding")
    for one in (kernel, other):
        machine.drop(one)
    backend.stop()
