"""Ctrl-C in a wait: cells, cells with a top-level await, subshells; and what users do with signals themselves."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

from jupyter_salus.protocol.messages import CellFinished, TurnWanted, TurnWithdrawn
from tests.guest.conftest import Governed
from tests.guest.kernels import Kernel, Ran

#: Computes on one line until it is stopped from outside.
ENDLESS = "while True: x += 1"


def shown(ran) -> str:
    """A traceback as text, without colours and execution counts."""
    return re.sub(r"\x1b\[[0-9;]*m|In\[\d+\]|In \[\d+\]", "", ran.traceback)


def test_an_interrupt_ends_the_wait_as_in_a_plain_kernel(
    governed: Governed, plain: Kernel, wait_until: Callable[..., None]
) -> None:
    runs = governed.flag()
    code = f"open({str(runs)!r}, 'w').close()\n{ENDLESS}"
    request = governed.kernel.submit(code)
    governed.backend.expect(TurnWanted)
    governed.kernel.interrupt()
    ran = governed.kernel.collect(request)
    governed.backend.expect(TurnWithdrawn)
    runs.unlink()
    request = plain.submit(code)
    wait_until(runs.exists, "the plain kernel's loop")
    plain.interrupt()
    assert shown(ran) == shown(plain.collect(request))
    assert governed.kernel.run("print('next')").text == "next\n"


def test_cells_queued_behind_an_interrupted_one_are_aborted_and_the_next_runs(governed: Governed) -> None:
    first = governed.kernel.submit(ENDLESS)
    second = governed.kernel.submit("print('second')")
    governed.backend.expect(TurnWanted)
    governed.kernel.interrupt()
    assert governed.kernel.collect(first).status == "error"
    assert governed.kernel.collect(second).status == "aborted"
    assert governed.kernel.run("print('third')").text == "third\n"


def test_an_interrupt_ends_the_wait_of_a_cell_with_a_top_level_await(governed: Governed) -> None:
    request = governed.kernel.submit("await asyncio.sleep(0)\n" + ENDLESS)
    governed.backend.expect(TurnWanted)
    governed.kernel.interrupt()
    ran = governed.kernel.collect(request)
    assert ran.status == "error" and ran.reply["ename"] == "KeyboardInterrupt"
    assert "guest" not in shown(ran)
    assert governed.kernel.run("await asyncio.sleep(0)\nprint('next')").text == "next\n"


def test_the_servers_interrupt_ends_the_wait_even_if_no_signal_comes(governed: Governed) -> None:
    request = governed.kernel.submit(ENDLESS)
    governed.backend.expect(TurnWanted)
    governed.backend.interrupt()
    assert governed.kernel.collect(request).reply["ename"] == "KeyboardInterrupt"


def test_signal_and_message_together_are_one_interrupt(governed: Governed) -> None:
    # A loop that is the first thing in its `try` isn't covered by it in CPython 3.11 and 3.12, with and without a guest.
    request = governed.kernel.submit(
        f"try:\n    x = 0\n    {ENDLESS}\nexcept KeyboardInterrupt:\n    time.sleep(1)\n    print('once')"
    )
    governed.backend.expect(TurnWanted)
    governed.backend.interrupt()
    governed.kernel.interrupt()
    ran = governed.kernel.collect(request)
    assert ran.text == "once\n", shown(ran)


def test_a_users_sigint_handler_is_kept_and_called(governed: Governed) -> None:
    request = governed.kernel.submit(
        "came = []\n"
        "def mine(number, frame): came.append((number, frame.f_code.co_name))\n"
        "before = signal.signal(signal.SIGINT, mine)\n"
        "while not came: x += 1\n"
        "print(came, signal.getsignal(signal.SIGINT) is mine)\n"
        "signal.signal(signal.SIGINT, before)"
    )
    governed.backend.expect(TurnWanted)
    governed.kernel.interrupt()
    assert governed.kernel.collect(request).text == "[(2, '<module>')] True\n"


def alarm_in_a_wait(governed: Governed, code: str) -> Ran:
    """Run a cell that handles SIGALRM and computes, and send that signal once it waits."""
    request = governed.kernel.submit(code)
    governed.backend.expect(TurnWanted)
    os.kill(governed.kernel.pid, signal.SIGALRM)
    ran = governed.kernel.collect(request)
    governed.backend.expect(CellFinished)
    return ran


def test_what_a_users_own_handler_raises_in_a_wait_is_shown_as_in_a_plain_kernel(
    governed: Governed, plain: Kernel, wait_until: Callable[..., None]
) -> None:
    runs = governed.flag()
    code = (
        "def late(number, frame): raise TimeoutError('too late')\n"
        "signal.signal(signal.SIGALRM, late)\n"
        f"open({str(runs)!r}, 'w').close()\n"
        "while True: x += 1"
    )
    ran = alarm_in_a_wait(governed, code)
    governed.backend.expect(TurnWithdrawn)
    assert ran.reply["evalue"] == "too late"
    runs.unlink()
    request = plain.submit(code)
    wait_until(runs.exists, "the plain kernel's loop")
    os.kill(plain.pid, signal.SIGALRM)
    assert shown(ran) == shown(plain.collect(request))


def test_a_timeout_of_the_users_can_be_caught_and_the_cell_goes_on(governed: Governed) -> None:
    ran = alarm_in_a_wait(
        governed,
        "import traceback\n"
        "def late(number, frame): raise TimeoutError('too late')\n"
        "signal.signal(signal.SIGALRM, late)\n"
        "try:\n"
        "    x = 0\n"
        "    while True: x += 1\n"
        "except TimeoutError as error:\n"
        "    names = [one.name for one in traceback.extract_tb(error.__traceback__)]\n"
        "print(names)",
    )
    assert ran.text == "['<module>', 'late']\n"


def test_a_subshells_wait_ends_by_the_servers_interrupt(governed: Governed) -> None:
    client = governed.kernel.client
    message = client.session.msg("create_subshell_request")
    client.control_channel.send(message)
    subshell = client.get_control_msg(timeout=60)["content"]["subshell_id"]
    full = client.session.msg(
        "execute_request",
        {"code": "import jupyter_salus\nwhile True: sum(range(1000)); jupyter_salus.boundary()", "silent": False},
    )
    full["header"]["subshell_id"] = subshell
    client.shell_channel.send(full)
    governed.backend.expect(TurnWanted)
    assert governed.kernel.run("print('beside')").text == "beside\n"
    governed.backend.interrupt()
    assert governed.kernel.collect(full["header"]["msg_id"]).reply["ename"] == "KeyboardInterrupt"


def test_an_interrupt_while_the_grant_is_on_its_way_is_not_lost(governed: Governed) -> None:
    governed.backend.generous = True
    for _ in range(5):
        governed.backend.forget()
        request = governed.kernel.submit(ENDLESS)
        governed.backend.expect(TurnWanted)
        governed.kernel.interrupt()
        assert governed.kernel.collect(request).reply["ename"] == "KeyboardInterrupt"
        governed.backend.expect(CellFinished)
    assert governed.backend.epoch is None
