"""Turns: asked for at the first touch, held, taken back at boundaries, given back; and backends that go and come."""

from __future__ import annotations

from jupyter_salus.protocol.messages import (
    CellFinished,
    CellStarted,
    Hello,
    Progress,
    TurnGranted,
    TurnReleased,
    TurnRevoked,
    TurnWanted,
)
from tests.guest.conftest import Governed
from tests.guest.kernels import Kernel
from tests.guest.scripted import ScriptedBackend


def looping(flag, body: str = "x += 1") -> str:
    """A cell that computes in a loop until the flag is there; what it prints tells that it ended by itself."""
    return f"while not os.path.exists({str(flag)!r}):\n    {body}\nprint('ended')"


def test_a_computing_cell_asks_once_and_gives_back_at_its_end(governed: Governed) -> None:
    governed.backend.generous = True
    flag = governed.flag()
    request = governed.kernel.submit(looping(flag))
    governed.backend.expect(TurnWanted)
    assert governed.finish(request, flag).text == "ended\n"
    assert governed.backend.kinds() == ["cell_started", "turn_wanted", "turn_released", "cell_finished"]
    released = governed.backend.expect(TurnReleased)
    assert not released.wants_more and released.resident_bytes is not None and released.resident_bytes > 0


def test_a_revoked_turn_passes_in_mid_cell_and_comes_back(governed: Governed) -> None:
    flag = governed.flag()
    request = governed.kernel.submit(looping(flag))
    governed.backend.grant(governed.backend.expect(TurnWanted).ticket)
    for _ in range(5):
        governed.pass_a_turn()
    assert governed.finish(request, flag).text == "ended\n"
    assert len(governed.backend.all(TurnWanted)) == 1


def test_while_it_waits_the_cell_computes_nothing(governed: Governed) -> None:
    log = governed.folder / "log"
    request = governed.kernel.submit(
        f"out = open({str(log)!r}, 'w')\nfor i in range(100000):\n    out.write('x'); out.flush(); sum(range(300))"
    )
    ticket = governed.backend.expect(TurnWanted).ticket
    size = log.stat().st_size
    governed.kernel.client.control_channel.send(governed.kernel.client.session.msg("kernel_info_request"))
    governed.kernel.client.get_control_msg(timeout=60)
    assert log.stat().st_size == size
    governed.backend.generous = True
    governed.backend.grant(ticket)
    assert governed.kernel.collect(request).status == "ok"
    assert log.stat().st_size == 100000


def test_progress_counts_boundaries_and_tells_what_is_to_come(governed: Governed) -> None:
    governed.backend.generous = True
    governed.kernel.run("import jupyter_salus\nfor i in jupyter_salus.iterations(range(400)): sum(range(20000))")
    governed.backend.expect(CellFinished)
    said = governed.backend.all(Progress)
    assert 100 < governed.backend.iterations() <= 400
    assert all(one.resident_bytes and one.busy_s >= 0 for one in said)
    told = [one.remaining for one in said if one.remaining is not None]
    assert told == sorted(told, reverse=True) and told[0] < 400


def test_a_grant_that_nobody_waits_for_is_given_back(governed: Governed) -> None:
    governed.backend.send(TurnGranted(epoch=7, ticket=999_999))
    assert governed.backend.expect(TurnReleased).epoch == 7


def test_a_grant_that_crossed_a_newer_request_counts(governed: Governed) -> None:
    flag = governed.flag()
    request = governed.kernel.submit(looping(flag))
    ticket = governed.backend.expect(TurnWanted).ticket
    governed.backend.grant(ticket - 1)
    governed.pass_a_turn()
    assert governed.finish(request, flag).text == "ended\n"


def test_a_revocation_of_another_epoch_changes_nothing(governed: Governed) -> None:
    flag = governed.flag()
    request = governed.kernel.submit(looping(flag))
    governed.backend.grant(governed.backend.expect(TurnWanted).ticket)
    governed.backend.send(TurnRevoked(epoch=3, deadline=0.0))
    assert governed.backend.expect(TurnReleased).epoch == 3
    governed.pass_a_turn()
    assert governed.finish(request, flag).text == "ended\n"


def test_a_cell_at_a_prompt_gives_a_revoked_turn_back(governed: Governed) -> None:
    request = governed.kernel.submit(
        "end = time.thread_time() + 0.3\nwhile time.thread_time() < end: x += 1\nprint(input('name? '))",
        allow_stdin=True,
    )
    governed.backend.grant(governed.backend.expect(TurnWanted).ticket)
    governed.kernel.client.get_stdin_msg(timeout=60)
    governed.backend.revoke()
    released = governed.backend.expect(TurnReleased)
    assert not released.wants_more
    governed.kernel.client.input("Ada")
    assert governed.kernel.collect(request).text == "Ada\n"


def test_a_thread_that_outlives_its_cell_asks_in_the_background(governed: Governed) -> None:
    flag = governed.flag()
    governed.kernel.run(
        "import jupyter_salus\n"
        "def work():\n"
        f"    while not os.path.exists({str(flag)!r}):\n"
        "        sum(range(1000)); jupyter_salus.boundary()\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()"
    )
    wanted = governed.backend.expect(TurnWanted)
    governed.backend.generous = True
    governed.backend.grant(wanted.ticket)
    flag.touch()
    governed.backend.expect(TurnReleased)
    governed.kernel.run("thread.join()")


def test_a_wait_ends_when_the_backend_goes_and_a_new_one_learns_the_truth(
    backend: ScriptedBackend, kernel: Kernel
) -> None:
    backend.generous = False
    flag = backend.path.parent / "flag"
    request = kernel.submit(f"import os\nx = 0\nwhile not os.path.exists({str(flag)!r}):\n    x += 1\nprint('ended')")
    backend.expect(TurnWanted)
    backend.stop()
    backend.forget()
    backend.start()
    hello = backend.expect(Hello)
    assert (hello.key, hello.token, hello.waiting, hello.holding, hello.touched) == ("k", None, True, None, False)
    backend.expect(CellStarted)
    epoch = backend.grant(backend.expect(TurnWanted).ticket)
    backend.revoke(epoch)
    released = backend.expect(TurnReleased)
    backend.grant(released.ticket or 0)
    backend.stop()
    backend.forget()
    backend.start()
    hello = backend.expect(Hello)
    assert (hello.holding, hello.touched) == (True, True)
    backend.generous = True
    backend.grant(backend.expect(TurnWanted).ticket)
    flag.touch()
    assert kernel.collect(request).text == "ended\n"
