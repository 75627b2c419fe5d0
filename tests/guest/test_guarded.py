"""Sessions on a GPU, scripted: with the guard (`blocks`) it asks for turns, and the guest passes them on; without (`plain`)
the guest asks as on the host, and says nothing of RAM."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_salus.protocol.messages import (
    CellFinished,
    CellStarted,
    Progress,
    TurnGranted,
    TurnReleased,
    TurnWanted,
    WaitExplained,
)
from tests.guest.conftest import Governed
from tests.guest.kernels import NOTEBOOK_METADATA
from tests.guest.test_line import kinds, wait_for_line
from tests.guest.test_turns import looping


@pytest.fixture(scope="module")
def guarded_kernel(governed_by: Callable[..., Governed]) -> Governed:
    """A kernel whose backend says that the guard governs its memory."""
    return governed_by(memory_mode="blocks")


@pytest.fixture(scope="module")
def unguarded(governed_by: Callable[..., Governed]) -> Governed:
    """A kernel on a GPU without a guard."""
    return governed_by(memory_mode="plain")


@pytest.fixture
def guarded(guarded_kernel: Governed) -> Governed:
    """The module's kernel, its backend with an empty record."""
    guarded_kernel.renew()
    return guarded_kernel


def touch(governed: Governed, epoch: int) -> int:
    """What follows a touch at the gate: a turn that the guest didn't ask for."""
    governed.backend.epoch = epoch
    governed.backend.send(TurnGranted(epoch=epoch, ticket=0))
    return epoch


def test_a_cell_that_computes_on_the_cpu_asks_for_nothing(guarded: Governed) -> None:
    ran = guarded.kernel.run("end = time.thread_time() + 0.3\nwhile time.thread_time() < end: x += 1\nprint('done')")
    guarded.backend.expect(CellFinished)
    assert ran.text == "done\n"
    assert guarded.backend.kinds() == ["cell_started", "cell_finished"]


def test_an_unasked_turn_is_kept_and_given_back_at_the_cells_end(guarded: Governed) -> None:
    request = guarded.kernel.submit(
        "turn = sys.modules['_jupyter_salus.guest'].running().turn\nwhile turn.epoch != 7: x += 1"
    )
    guarded.backend.expect(CellStarted)
    touch(guarded, 7)
    guarded.kernel.collect(request)
    released = guarded.backend.expect(TurnReleased)
    assert (released.epoch, released.wants_more, released.resident_bytes) == (7, False, None)
    guarded.backend.expect(CellFinished)
    assert guarded.backend.kinds() == ["cell_started", "turn_released", "cell_finished"]


def test_a_revoked_turn_passes_at_a_boundary_and_comes_back(guarded: Governed) -> None:
    flag = guarded.flag()
    request = guarded.kernel.submit(looping(flag))
    guarded.backend.expect(CellStarted)
    touch(guarded, 7)
    guarded.pass_a_turn()
    guarded.pass_a_turn()
    assert guarded.finish(request, flag).text == "ended\n"
    assert "turn_wanted" not in guarded.backend.kinds()


def test_a_turn_granted_after_a_stop_at_the_gate_replaces_the_revoked_one(guarded: Governed) -> None:
    flag = guarded.flag()
    request = guarded.kernel.submit(
        "turn = sys.modules['_jupyter_salus.guest'].running().turn\n"
        # No boundary: as if a call waited at the gate.
        "list(iter(lambda: turn.epoch == 8, True))\n" + looping(flag)
    )
    guarded.backend.expect(CellStarted)
    touch(guarded, 7)
    guarded.backend.revoke()
    touch(guarded, 8)
    guarded.pass_a_turn()
    assert guarded.finish(request, flag).text == "ended\n"
    assert 7 not in [one.epoch for one in guarded.backend.all(TurnReleased)]


def test_outside_cells_the_guard_gives_the_turn_back(guarded: Governed) -> None:
    touch(guarded, 9)
    guarded.kernel.run("turn = sys.modules['_jupyter_salus.guest'].running().turn\nwhile turn.epoch != 9: x += 1")
    released = guarded.backend.expect(TurnReleased)
    assert released.epoch == 9
    guarded.backend.expect(CellFinished)
    assert guarded.backend.kinds() == ["cell_started", "turn_released", "cell_finished"]


def test_a_cell_at_a_prompt_gives_a_revoked_turn_back(guarded: Governed) -> None:
    request = guarded.kernel.submit("print(input('name? '))", allow_stdin=True)
    guarded.backend.expect(CellStarted)
    touch(guarded, 11)
    guarded.kernel.client.get_stdin_msg(timeout=60)
    guarded.backend.revoke()
    released = guarded.backend.expect(TurnReleased)
    assert (released.epoch, released.wants_more) == (11, False)
    guarded.kernel.client.input("Ada")
    assert guarded.kernel.collect(request).text == "Ada\n"


def test_the_line_of_a_wait_at_the_gate_stands_until_the_turn_comes(guarded: Governed) -> None:
    flag = guarded.flag()
    # Opens no boundary of the guest's: stands for a call that waits at the gate.
    request = guarded.kernel.submit(
        f"list(iter(lambda: os.path.exists({str(flag)!r}) or time.sleep(0.01), True))\nprint('ended')",
        metadata=NOTEBOOK_METADATA,
    )
    guarded.backend.expect(CellStarted)
    guarded.backend.send(WaitExplained(ticket=0, code="turn", text="next in line, behind digits.ipynb"))
    assert wait_for_line(guarded, request)[-1]["content"]["text"] == "Salus: next in line, behind digits.ipynb\n"
    touch(guarded, 13)
    ran = guarded.finish(request, flag)
    assert kinds(ran) == ["clear_output", "stream"] and ran.text == "ended\n"


def test_iterations_are_told_without_ram(guarded: Governed) -> None:
    flag = guarded.flag()
    request = guarded.kernel.submit("import jupyter_salus\n" + looping(flag, "jupyter_salus.boundary()"))
    guarded.backend.expect(CellStarted)
    touch(guarded, 15)
    said = guarded.backend.expect(Progress)
    assert said.iterations > 0 and said.resident_bytes is None
    guarded.finish(request, flag)


def test_a_plain_session_asks_as_on_the_host_and_tells_no_ram(unguarded: Governed) -> None:
    unguarded.renew()
    flag = unguarded.flag()
    request = unguarded.kernel.submit(looping(flag))
    unguarded.backend.grant(unguarded.backend.expect(TurnWanted).ticket)
    unguarded.pass_a_turn()
    assert unguarded.finish(request, flag).text == "ended\n"
    assert {one.resident_bytes for one in unguarded.backend.all(TurnReleased)} == {None}
