"""Plain loops take turns without a line of ours in them, and nothing about them changes."""

from __future__ import annotations

import pytest

from jupyter_salus.protocol.messages import CellFinished, TurnReleased, TurnWanted
from tests.guest.conftest import Governed
from tests.guest.loop_cases import LOOPS, cell


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_takes_turns(any_python: Governed, name: str) -> None:
    flag = any_python.flag()
    request = any_python.kernel.submit(cell(name, flag, any_python.folder))
    any_python.backend.grant(any_python.backend.expect(TurnWanted).ticket)
    any_python.pass_a_turn()
    any_python.pass_a_turn()
    assert any_python.finish(request, flag).text == "ended\n"


def test_a_loop_near_the_recursion_limit_ends_as_without_checks(any_python: Governed) -> None:
    any_python.backend.generous = True
    ran = any_python.kernel.run(
        "def depth():\n"
        "    frame, count = sys._getframe(), 0\n"
        "    while frame: frame, count = frame.f_back, count + 1\n"
        "    return count\n"
        "def deep(left):\n"
        "    if left > 0: return deep(left - 1)\n"
        "    end = time.thread_time() + 0.05\n"
        "    total = 0\n"
        "    while time.thread_time() < end: total += 1\n"
        "    return total > 0\n"
        "def outcome(room):\n"
        "    try: return deep(sys.getrecursionlimit() - depth() - room)\n"
        "    except RecursionError: return 'too deep'\n"
        "def outcomes(): return [outcome(room) for room in range(-2, 8)]\n"
        "loops = sys.modules['_jupyter_salus.guest'].running().watch.loops\n"
        "loops.disarm()\n"
        "loops.arm = lambda: None\n"
        "unchecked = outcomes()\n"
        "del loops.arm\n"
        "print(outcomes() == unchecked or unchecked, unchecked[0], unchecked[-1])"
    )
    assert ran.text == "True too deep True\n", ran.traceback


def test_loops_of_the_standard_library_are_not_the_users(governed: Governed) -> None:
    # One call that loops in Python for a while inside the standard library.
    ran = governed.kernel.run(
        "import fractions, statistics\nprint(statistics.mean([fractions.Fraction(1, 3)] * 300000))"
    )
    assert ran.text == "1/3\n"
    assert "turn_wanted" not in governed.backend.kinds()


MEASURED = {
    "prun": "get_ipython().run_line_magic('prun', '-q work()')",
    "timeit": "get_ipython().run_line_magic('timeit', '-q -r 1 -n 1 work()')",
}


@pytest.mark.parametrize("how", MEASURED)
def test_a_measured_loop_passes_no_turn_before_the_deadline(governed: Governed, how: str) -> None:
    request = governed.kernel.submit(
        "turn = sys.modules['_jupyter_salus.guest'].running().turn\n"
        "def work():\n"
        "    global kept\n"
        "    while not turn.revoked: sum(range(100))\n"
        "    end = time.thread_time() + 0.3\n"
        "    while time.thread_time() < end: sum(range(100))\n"
        "    kept = turn.epoch is not None\n"
        "while turn.epoch is None: sum(range(100))\n"
        "time.sleep(0)\n"
        f"{MEASURED[how]}\nprint(kept)"
    )
    governed.backend.grant(governed.backend.expect(TurnWanted).ticket)
    governed.backend.generous = True
    governed.backend.revoke(deadline_s=3600.0)
    assert governed.kernel.collect(request).text.strip().endswith("True")


@pytest.mark.parametrize("how", MEASURED)
def test_a_measured_loop_passes_its_turn_once_the_deadline_is_over(governed: Governed, how: str) -> None:
    request = governed.kernel.submit(
        "turn = sys.modules['_jupyter_salus.guest'].running().turn\n"
        "def work():\n"
        "    first = turn.epoch\n"
        "    while turn.epoch in (None, first): sum(range(100))\n"
        "while turn.epoch is None: sum(range(100))\n"
        f"{MEASURED[how]}\nprint('passed')"
    )
    governed.backend.grant(governed.backend.expect(TurnWanted).ticket)
    governed.backend.generous = True
    governed.backend.revoke(deadline_s=0.0)
    assert governed.kernel.collect(request).text.strip().endswith("passed")
    assert governed.backend.all(TurnReleased)[0].wants_more


def test_a_pickled_function_loads_where_there_is_no_guest(governed: Governed) -> None:
    governed.backend.generous = True
    ran = governed.kernel.run(
        "import marshal, subprocess\n"
        "def work(n):\n    total = 0\n    for i in range(n): total += i\n    return total\n"
        "before = work.__code__.co_code\nwork(3_000_000)\n"
        "code = 'import marshal, sys, types; code = marshal.loads(sys.stdin.buffer.read());"
        " print(types.FunctionType(code, dict(range=range))(10))'\n"
        "done = subprocess.run([sys.executable, '-c', code], input=marshal.dumps(work.__code__), capture_output=True)\n"
        "print(done.stdout, before == work.__code__.co_code)"
    )
    assert ran.text == "b'45\\n' True\n"


def test_a_cell_that_traces_itself_still_ends_as_it_should(governed: Governed) -> None:
    governed.backend.generous = True
    ran = governed.kernel.run(
        "lines = []\n"
        "def tracer(frame, event, arg):\n"
        "    if event == 'line' and frame.f_code.co_name == 'work': lines.append(frame.f_lineno)\n"
        "    return tracer\n"
        "def work():\n    total = 0\n    for i in range(20000):\n        total += i\n    return total\n"
        "sys.settrace(tracer)\ntry: total = work()\nfinally: sys.settrace(None)\n"
        "print(total, len(lines))"
    )
    assert ran.text == "199990000 40003\n"
    governed.backend.expect(CellFinished)
