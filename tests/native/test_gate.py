"""The gate: who waits, who doesn't, and what a turn's end waits for."""

from __future__ import annotations

import os
import signal

import pytest

from tests.native.backend import Guard, until
from tests.native.world import Child, ChildError, World


def begin(world: World, easy: bool = True, **environment: str) -> tuple[Child, Guard]:
    backend = world.backend(easy)
    child = world.child(**environment)
    starting = child.begin("globals().update(context=start())")
    guard = backend.guard()
    if easy:
        child.end(starting)
        child.do("call('cuCtxSetCurrent', context)")
    else:
        guard.welcome()
    return child, guard


def test_the_first_touch_asks_for_a_turn_once_and_waits(world: World) -> None:
    child, guard = begin(world, easy=False)
    guard.wait("touched", ticket=1)
    more = [child.begin("start()") for _ in range(3)]
    until(lambda: child.state()["waiting"] == 4, "four waiting calls")
    assert guard.count("touched") == 1
    guard.open()
    for number in more:
        assert child.end(number) == child.do("context")
    assert child.state()["gate"] == "open"


def test_questions_need_no_turn(world: World) -> None:
    world.backend()
    child = world.child()
    child.do("call('cuInit', 0)")
    assert child.do("got('cuDeviceGetCount', kind=c.c_int)") == 1
    assert child.do("guard_state()['calls']") == 0
    assert len(os.listdir(f"/proc/{child.pid}/task")) <= 2


def test_calls_wait_after_the_turn_was_taken_back_and_ask_again(world: World) -> None:
    child, guard = begin(world)
    child.do("a = alloc(4 << 20)")
    asked = guard.count("touched")
    guard.drain()
    waiting = child.begin("write(a, b'x' * 100)")
    guard.wait("touched", ticket=asked + 1)
    assert not child.ready(waiting)
    guard.open()
    with pytest.raises(ChildError, match="201"):  # no context on that thread: the driver's own answer, after the wait
        child.end(waiting)


def test_the_device_is_drained_before_a_turn_counts_as_given_back(world: World) -> None:
    child, guard = begin(world)
    child.do("k = Kernels(); s = stream(); n = 1 << 18; a = alloc(4 * n); k.spin(0.5, s); k.fill(a, n, 7, s)")
    guard.drain()
    assert child.do("result('cuStreamQuery', s)") == 0
    guard.evict(1)
    guard.restore(2)
    guard.easy = True
    guard.open()
    assert child.do("words(a, n)") == [7]


def test_a_drain_that_lasts_too_long_is_given_up_and_the_turn_goes_on(world: World) -> None:
    child, guard = begin(world)
    child.do("k = Kernels(); s = stream(); k.spin(60, s)")
    epoch = guard.close_gate(drain_s=0.1)
    assert guard.wait("move_failed", epoch=epoch)["code"] == "drain"
    child.do("k.spin(0.001, s)")  # passes: the gate is open again
    assert child.state()["gate"] == "open"


def test_a_single_call_is_let_pass_while_the_gate_stays_shut(world: World) -> None:
    child, guard = begin(world)
    child.do("a = alloc(4 << 20)")
    guard.drain()
    first = child.begin("call('cuCtxSetCurrent', context); write(a, b'x' * 100)")
    until(lambda: child.state()["waiting"] == 1, "the first call at the gate")
    guard.open(calls=1)
    child.end(first)
    second = child.begin("call('cuCtxSetCurrent', context); write(a, b'y' * 100)")
    until(lambda: child.state()["waiting"] == 1, "the second call at the gate")
    assert child.state()["gate"] == "shut"
    guard.drain()
    guard.evict(1)
    guard.restore(2)
    guard.open()
    child.end(second)
    assert child.do("read(a, 100)[:1] == b'y'")


def test_while_a_graph_is_captured_the_gate_stays_open(world: World) -> None:
    child, guard = begin(world)
    child.do(
        "k = Kernels(); s = stream(); n = 1 << 18; a = alloc(4 * n); k.fill(a, n, 1, s); sync(s); begin_capture(s)"
    )
    epoch = guard.close_gate(drain_s=60)
    child.do("[k.add(a, a, n, s) for _ in range(20)]")
    assert guard.count("turn_drained") == 0
    guard.easy = False
    child.do("g = instantiate(end_capture(s))")
    guard.wait("turn_drained", epoch=epoch)
    guard.easy = True
    guard.open()
    child.do("call('cuGraphLaunch', g, s); sync(s)")
    assert child.do("words(a, n)") == [1 << 20]


def test_a_free_during_a_capture_waits_for_its_end_and_harms_it_not(world: World) -> None:
    child, _ = begin(world)
    child.do(
        "k = Kernels(); s = stream(); n = 1 << 18; a = alloc(4 * n); k.fill(a, n, 3, s); sync(s); gone = alloc(16 << 20)"
    )
    held = world.used()
    child.do("begin_capture(s, 2); k.add(a, a, n, s); before = exchange_mode(2); free(gone); exchange_mode(before)")
    assert world.used() == held
    child.do("g = instantiate(end_capture(s)); call('cuGraphLaunch', g, s); sync(s)")
    assert held - world.used() >= 16 << 20
    assert child.do("words(a, n)") == [6]


def test_ctrl_c_ends_a_wait_for_a_turn_after_the_one_call_was_let_pass(world: World) -> None:
    child, guard = begin(world)
    child.do("a = alloc(4 << 20)")
    guard.drain()
    touches = guard.count("touched")
    waiting = child.begin("write(a, b'x' * 100)", apart=False)
    until(lambda: guard.count("touched") > touches, "the touch")
    os.kill(child.pid, signal.SIGINT)
    guard.say("interrupt")
    guard.open(calls=1)
    with pytest.raises(ChildError, match="KeyboardInterrupt"):
        child.end(waiting)
    guard.easy = True
    guard.open()
    assert child.do("read(a, 1) == b'x'")


def test_signals_never_reach_the_guards_threads(world: World) -> None:
    child, _ = begin(world)
    blocked = []
    for task in os.listdir(f"/proc/{child.pid}/task"):
        with open(f"/proc/{child.pid}/task/{task}/status") as status:
            blocked.append(int(next(line for line in status if line.startswith("SigBlk")).split()[1], 16))
    assert sum(bool(mask & 1 << (signal.SIGINT - 1)) for mask in blocked) >= 1
    assert blocked[0] & 1 << (signal.SIGINT - 1) == 0


def test_late_epochs_are_ignored(world: World) -> None:
    child, guard = begin(world)
    guard.epoch = 40
    guard.drain()
    guard.say("open_gate", epoch=7)
    guard.say("ping")
    guard.wait("pong")
    assert child.state()["gate"] == "shut"


def test_a_child_forked_before_any_touch_says_its_own_hello(world: World) -> None:
    backend = world.backend()
    child = world.child()
    child.do("import os")
    child.do(
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    start(); a = alloc(4 << 20); write(a, b'c' * 100)\n"
        "    os._exit(0 if read(a, 1) == b'c' else 1)\n"
        "ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    )
    assert child.do("ended") == 0
    assert backend.guard(0).wait("hello")["pid"] == child.do("pid")
    child.do("start()")
    assert backend.guard(1).wait("hello")["pid"] == child.pid


LOOK_AROUND = """
pid = os.fork()
if pid == 0:
    paths = [f'/proc/self/fd/{n}' for n in os.listdir('/proc/self/fd')]
    sockets = [p for p in paths if os.path.lexists(p) and 'socket' in os.readlink(p)]
    state = guard_state()
    os._exit((sockets != []) + 2 * (state['gate'] != 'open') + 4 * (state['blocks'] != 0))
ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def test_a_child_forked_from_a_process_with_a_context_keeps_nothing_and_never_waits(world: World) -> None:
    child, guard = begin(world)
    child.do("import os; a = alloc(4 << 20)")
    guard.drain()
    child.do(LOOK_AROUND)
    assert child.do("ended") == 0
    guard.evict(1)
    guard.restore(2)
