"""The guest in kernels of other Pythons, in environments that know nothing of jupyter_salus: interrupts, tools, imports."""

from __future__ import annotations

import os
import signal

from jupyter_salus.protocol.messages import CellFinished, TurnWanted, TurnWithdrawn
from tests.guest.conftest import Governed


def test_an_interrupt_ends_a_wait_and_shows_no_frame_of_the_guest(foreign: Governed) -> None:
    for begin in ("", "await asyncio.sleep(0)\n"):
        foreign.renew()
        request = foreign.kernel.submit(begin + "while True: x += 1")
        foreign.backend.expect(TurnWanted)
        foreign.kernel.interrupt()
        ran = foreign.kernel.collect(request)
        assert ran.status == "error" and "guest" not in ran.traceback
        assert foreign.kernel.run("print('next')").text == "next\n"


def test_what_a_users_handler_raises_in_a_wait_shows_no_frame_of_the_guest(foreign: Governed) -> None:
    request = foreign.kernel.submit(
        "import traceback\n"
        "def late(number, frame): raise TimeoutError('too late')\n"
        "signal.signal(signal.SIGALRM, late)\n"
        "try:\n"
        "    x = 0\n"
        "    while True: x += 1\n"
        "except TimeoutError as error:\n"
        "    names = [one.name for one in traceback.extract_tb(error.__traceback__)]\n"
        "    print(names[1:], str(error))"
    )
    foreign.backend.expect(TurnWanted)
    os.kill(foreign.kernel.pid, signal.SIGALRM)
    ran = foreign.kernel.collect(request)
    assert ran.text == "['late'] too late\n", ran.traceback
    foreign.backend.expect(TurnWithdrawn)


TOOLS_TAKEN = """
monitoring = sys.monitoring
free = []
while len(free) < 6:
    for one in range(6):
        if monitoring.get_tool(one) is None:
            monitoring.use_tool_id(one, 'mine')
            free.append(one)
    time.sleep(0.01)
end = time.thread_time() + 0.3
while time.thread_time() < end: x += 1
print('went on')
"""

TOOL_FREED = """
def ours(): return [one for one in range(6) if sys.monitoring.get_tool(one) == 'jupyter_salus']
running = sys.modules['_jupyter_salus.guest'].running()
while running.turn.epoch is None: x += 1
end = time.thread_time() + 0.3
while time.thread_time() < end:
    for one in ours(): sys.monitoring.free_tool_id(one)
print('went on')
"""


def test_tools_of_the_users_own_keep_their_ids(foreign: Governed) -> None:
    if foreign.kernel.run("print(hasattr(sys, 'monitoring'))").text != "True\n":
        return  # before 3.12 there are no ids to share
    foreign.renew()
    ran = foreign.kernel.run(TOOLS_TAKEN)
    assert ran.text.startswith("went on"), ran.traceback
    assert "turn_wanted" not in foreign.backend.kinds()
    foreign.backend.generous = True
    foreign.kernel.run("for one in free: monitoring.free_tool_id(one)")
    foreign.renew()
    request = foreign.kernel.submit(TOOL_FREED)
    foreign.backend.grant(foreign.backend.expect(TurnWanted).ticket)
    foreign.backend.generous = True
    foreign.backend.revoke()
    assert foreign.kernel.collect(request).text == "went on\n"


def test_the_environment_is_as_it_was(foreign: Governed) -> None:
    foreign.backend.generous = True
    ran = foreign.kernel.run(
        "os.chdir('/')\n"
        "import importlib.util, subprocess\n"
        "ask = [sys.executable, '-c', 'import importlib.util as u; print(u.find_spec(\"jupyter_salus\"))']\n"
        "outside = subprocess.run(ask, capture_output=True, text=True, cwd='/').stdout.strip()\n"
        "import jupyter_salus\n"
        "jupyter_salus.boundary()\n"
        "print(outside, list(jupyter_salus.iterations('ab')))"
    )
    assert ran.text == "None ['a', 'b']\n", ran.traceback
    foreign.backend.expect(CellFinished)
