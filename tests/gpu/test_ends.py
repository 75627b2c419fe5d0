"""A kernel or a backend that ends takes nothing with it: bytes are free, others go on, the next one knows the truth."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu.machine import MIB, Backend, Machine, until


@pytest.fixture(scope="module")
def machine(machines: Callable[..., Machine]) -> Machine:
    return machines(capacity_mib=96)


@pytest.fixture(scope="module")
def backend(machine: Machine) -> Backend:
    return machine.backend()


@pytest.mark.parametrize("state", ["holding", "evicted"])
def test_a_killed_kernels_bytes_are_free_and_the_other_goes_on(machine: Machine, backend: Backend, state: str) -> None:
    other, killed = machine.kernel("other.ipynb"), machine.kernel("killed.ipynb")
    before = other.run("import tinyframe as t; x = t.Tensor(8, 1); s = x.digest()", "s")
    used = machine.used()
    killed.run("import tinyframe as t; x = t.Tensor(24, 5); s = x.digest()")
    if state == "evicted":
        backend.until(killed, state="holding")
        backend.act("evict", killed)
    backend.until(killed, state=state)
    killed.kill()
    until(lambda: machine.used() == used, "the bytes of the kernel to be free")
    until(lambda: backend.session(killed).get("persistent_bytes", 0) == 0, "the books to say so")
    assert other.run("s = x.digest()", "s") == before
    machine.drop(killed)
    machine.drop(other)


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
    backend = machine.backend()
    kernel = machine.kernel("survivor.ipynb", JUPYTER_SALUS_PATIENCE_S="1")
    before = kernel.run("import tinyframe as t; x = t.Tensor(16, 5); s = x.digest()", "s")
    backend.kill()
    # Nobody answers: after a second its guard opens the gate.
    assert kernel.run("s = x.digest()", "s") == before
    backend.start()
    until(lambda: backend.session(kernel).get("persistent_bytes", 0) >= 16 * MIB, "the new backend to know of it")
    backend.until(kernel, state="holding")
    backend.act("evict", kernel)
    backend.until(kernel, state="evicted")
    assert kernel.run("s = x.digest()", "s") == before
    machine.drop(kernel)
    backend.stop()
