"""What looks at loops, or takes their code elsewhere, sees what it would see without a guest, while turns pass."""

from __future__ import annotations

import importlib.util

import pytest

from jupyter_salus.protocol.messages import TurnReleased, TurnWanted
from tests.guest.conftest import Governed
from tests.guest.kernels import Kernel
from tests.guest.scripted import ScriptedBackend


def needs(module: str) -> pytest.MarkDecorator:
    """Skip where it isn't installed."""
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} isn't installed")


#: Ends once a turn was given back and another one came.
PASSED = (
    "turn = sys.modules['_jupyter_salus.guest'].running().turn\n"
    "def passed(seen=[]):\n"
    "    if turn.epoch is not None and turn.epoch not in seen: seen.append(turn.epoch)\n"
    "    return len(seen) > 2\n"
)


def run_while_turns_pass(governed: Governed, code: str) -> str:
    """What a cell prints that computes until `passed()`, with its turn taken back again and again."""
    request = governed.kernel.submit(PASSED + code)
    governed.backend.grant(governed.backend.expect(TurnWanted).ticket)
    governed.pass_a_turn()
    governed.pass_a_turn()
    governed.backend.generous = True
    ran = governed.kernel.collect(request)
    assert ran.status == "ok", ran.traceback
    return ran.text


def test_a_long_computation_in_python_between_two_back_edges_is_one_iteration(any_python: Governed) -> None:
    # The body computes in Python for long, and rarely comes back to the user's loop.
    if any_python.kernel.run("print(sys.version_info >= (3, 10))").text != "True\n":
        pytest.skip("Python 3.9 can't tell when a call returns: such a loop passes its turn late there")
    any_python.renew()
    text = run_while_turns_pass(
        any_python,
        "import statistics, fractions\n"
        "data, rounds = [fractions.Fraction(1, 3)] * 4000, 0\n"
        "while not passed(): rounds += 1; statistics.mean(data)\n"
        "print('ended')",
    )
    assert text == "ended\n"


def test_iterations_of_a_plain_loop_that_nobody_interrupts_are_counted(any_python: Governed) -> None:
    any_python.backend.generous = True
    ran = any_python.kernel.run(
        "tally = sys.modules['_jupyter_salus.guest'].running().tally\n"
        "before = tally.total_iterations\n"
        "while tally.total_iterations - before < 50: sum(range(20000))\n"
        "print('ended')"
    )
    assert ran.text == "ended\n"
    assert any_python.backend.all(TurnReleased)


@needs("numba")
@pytest.mark.timeout(240)
def test_numba_compiles_a_loop(framework_kernel: Governed) -> None:
    framework_kernel.renew()
    text = run_while_turns_pass(
        framework_kernel,
        "import numba\n"
        "@numba.njit\n"
        "def total(count):\n"
        "    found = 0\n"
        "    for number in range(count): found += number\n"
        "    return found\n"
        "while not passed(): found = total(100_000)\n"
        "print(found, len(total.signatures))",
    )
    assert text == "4999950000 1\n"


@needs("torch")
@pytest.mark.timeout(240)
def test_torch_compiles_a_loop_as_one_graph(framework_kernel: Governed) -> None:
    framework_kernel.renew()
    text = run_while_turns_pass(
        framework_kernel,
        "import torch, torch._dynamo.utils\n"
        "torch._dynamo.reset()\n"
        "torch._dynamo.utils.counters.clear()\n"
        "@torch.compile(fullgraph=True, backend='aot_eager')\n"
        "def work(value):\n"
        "    for number in range(4): value = value * 2 + number\n"
        "    return value\n"
        "while not passed(): found = float(work(torch.ones(1)))\n"
        "print(found, torch._dynamo.utils.counters['stats']['unique_graphs'])",
    )
    assert text.startswith("27.0 1"), text


@needs("cloudpickle")
def test_a_function_travels_to_an_interpreter_that_knows_nothing_of_it(governed: Governed) -> None:
    text = run_while_turns_pass(
        governed,
        "import cloudpickle, subprocess\n"
        "def work(count):\n"
        "    found = 0\n"
        "    for number in range(count): found += number\n"
        "    return found\n"
        "while not passed(): work(10_000)\n"
        "load = 'import pickle, sys; work = pickle.load(sys.stdin.buffer); print(work(10), \"jupyter_salus\" in sys.modules)'\n"
        "ran = subprocess.run([sys.executable, '-c', load], input=cloudpickle.dumps(work), capture_output=True)\n"
        "print(ran.stdout, ran.stderr)",
    )
    assert text == "b'45 False\\n' b''\n"


@needs("coverage")
def test_coverage_sees_the_same_lines(governed: Governed, plain: Kernel) -> None:
    measure = (
        "import coverage, importlib\n"
        f"sys.path.insert(0, {str(governed.folder)!r})\n"
        "measured = coverage.Coverage(data_file=None, include=['*covered_loop.py'], config_file=False)\n"
        "measured.start()\n"
        "import covered_loop\n"
        "covered_loop.work(passed)\n"
        "measured.stop()\n"
        "print(sorted(measured.get_data().lines(covered_loop.__file__)))"
    )
    (governed.folder / "covered_loop.py").write_text(
        "def work(passed):\n    found = 0\n    while not passed():\n        if found < 0:\n            found = 1\n"
        "        for number in range(50):\n            found += number\n    return found\n"
    )
    text = run_while_turns_pass(governed, measure)
    ran = plain.run(
        "from itertools import count\nnumbers = count()\ndef passed(): return next(numbers) > 100\n" + measure
    )
    assert text == ran.text == "[1, 2, 3, 4, 6, 7, 8]\n"


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("stats = get_ipython().run_line_magic('prun', '-q -r work()')", id="prun"),
        pytest.param("p = cProfile.Profile(); p.enable(); work(); p.disable(); stats = pstats.Stats(p)", id="enabled"),
    ],
)
def test_a_profile_shows_no_check_of_a_loop(any_python: Governed, how: str) -> None:
    if any_python.kernel.run("print(sys.version_info >= (3, 10))").text != "True\n":
        pytest.skip("Python 3.9 has no signal to land by: a profile shows what lands there")
    any_python.renew()
    request = any_python.kernel.submit(
        "import cProfile, pstats\n"
        "turn = sys.modules['_jupyter_salus.guest'].running().turn\n"
        "def work():\n"
        "    end = time.thread_time() + 0.2\n"
        "    while time.thread_time() < end or not turn.revoked: sum(range(100))\n"
        "while turn.epoch is None: sum(range(100))\n"
        # By their names: IPython strips folders. From 3.12 on a profiler sees all threads, the guest's own too.
        "landed = {'_on_signal', '_on_jump', '_land', '_edges', 'may_wait', 'has_room', 'profiled', 'back_edge'}\n"
        f"{how}\nprint(turn.revoked, landed & {{name for _, _, name in stats.stats}})"
    )
    any_python.backend.grant(any_python.backend.expect(TurnWanted).ticket)
    any_python.backend.generous = True
    any_python.backend.revoke(deadline_s=3600.0)
    assert any_python.kernel.collect(request).text.strip() == "True set()"


def test_a_timed_cell_is_timed(governed: Governed) -> None:
    governed.backend.generous = True
    ran = governed.kernel.run("%%timeit -r 2 -n 20 found = 0\nfor number in range(20000): found += number")
    assert ran.status == "ok" and "2 runs, 20 loops each" in ran.text


def test_a_debugger_steps_through_a_loop(backend: ScriptedBackend, kernel: Kernel) -> None:
    client = kernel.client
    numbers = iter(range(1, 100))

    def ask(command: str, **arguments: object) -> dict[str, object]:
        content = {"type": "request", "seq": next(numbers), "command": command, "arguments": arguments}
        message = client.session.msg("debug_request", content)
        client.control_channel.send(message)
        while True:
            answer = client.get_control_msg(timeout=60)
            if answer["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                body: dict[str, object] = answer["content"]
                return body

    def stopped() -> None:
        while True:
            message = client.get_iopub_msg(timeout=60)
            if message["msg_type"] == "debug_event" and message["content"].get("event") == "stopped":
                return

    ask("initialize", clientID="test", adapterID="", pathFormat="path", linesStartAt1=True, columnsStartAt1=True)
    ask("attach")
    code = "found = 0\nfor number in range(3):\n    found += number\nprint(found)"
    source = ask("dumpCell", code=code)["body"]["sourcePath"]  # type: ignore[index]
    ask("setBreakpoints", breakpoints=[{"line": 3}], source={"path": source}, sourceModified=False)
    ask("configurationDone")
    request = kernel.submit(code)
    lines, paths = [], set()
    for _ in range(3):
        stopped()
        thread = ask("threads")["body"]["threads"][0]["id"]  # type: ignore[index]
        frames = ask("stackTrace", threadId=thread)["body"]["stackFrames"]  # type: ignore[index]
        lines.append(frames[0]["line"])
        paths |= {frame.get("source", {}).get("path", "") for frame in frames}
        ask("next", threadId=thread)
        stopped()
        lines.append(ask("stackTrace", threadId=thread)["body"]["stackFrames"][0]["line"])  # type: ignore[index]
        ask("continue", threadId=thread)
    ran = kernel.collect(request)
    ask("disconnect", restart=False, terminateDebuggee=False)
    assert lines == [3, 2, 3, 2, 3, 2] and ran.text == "3\n"
    assert not [path for path in paths if "jupyter_salus" in path], "the call stack is the user's and the kernel's"
