"""Turns are taken back at random times, memory goes out and comes back, and the results are those of an undisturbed run.

Mutants of the guard must be found by the same check: else it proves nothing.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from jupyter_salus.native import build
from tests.native.backend import until
from tests.native.world import ChildError, World

NATIVE = Path(build.__file__).parent

#: Two threads with a stream each; each step launches, and each tenth reads back, makes a new block and frees the old one.
WORK = """
import hashlib, threading
def job(number, results):
    call('cuCtxSetCurrent', context)
    k, s, n = Kernels(), stream(), 1 << 17
    a, b = alloc(8 * n), alloc(8 * n)
    write(a, bytes(range(256)) * (n // 32)); write(b, bytes(8 * n))
    total = hashlib.sha256()
    for step in range(120):
        k.mix(a, n, 1 + step % 3, s)
        k.add(b, a, 2 * n, s)
        if step % 10 == 9:
            sync(s)
            total.update(read(b, 8 * n))
            fresh = alloc(8 * n)
            call('cuMemcpyDtoD_v2', fresh, a, 8 * n)
            free(a)
            a = fresh
    results[number] = total.hexdigest()
def work():
    results = {}
    threads = [threading.Thread(target=job, args=(i, results)) for i in range(2)]
    [t.start() for t in threads]; [t.join() for t in threads]
    return [results.get(0), results.get(1)]
"""


def results_undisturbed(world: World) -> list[str]:
    plain = world.child(guard=None)
    plain.do(WORK)
    plain.do("context = start()")
    results: list[str] = plain.do("work()")
    plain.stop()
    return results


def results_preempted(world: World, times: int, seed: int) -> tuple[list[str], int]:
    """The results under `times` preemptions, and how many happened while the work ran."""
    chance = random.Random(seed)
    backend = world.backend()
    child = world.child(SALUS_STANDIN_SLOW_US="1500")
    child.do(WORK)
    child.do("context = start()")
    link = backend.guard()
    link.easy = False
    running = child.begin("work()")
    happened = 0
    for move in range(times):
        asleep = child.begin(f"__import__('time').sleep({chance.random() * 0.05})")
        child.end(asleep)
        if child.ready(running):
            break
        link.drain()
        out = link.evict(2 * move + 1)
        assert world.used() <= (8 << 20) + (64 << 20)
        happened += bool(out["bytes"])
        link.restore(2 * move + 2)
        link.open()
    results = child.end(running)
    child.stop()
    backend.stop()
    return results, happened


@pytest.mark.slow
def test_results_are_the_same_under_preemption_at_random_times(world: World) -> None:
    expected = results_undisturbed(world)
    for seed in range(5):
        results, happened = results_preempted(world, times=12, seed=seed)
        assert results == expected
        if happened:
            return
    raise AssertionError("the work was always done before its turn could be taken back")


MUTANTS = {
    "the gate is always open": (
        "guard/gate.h",
        "if (__builtin_expect(atomic_load_explicit(&gate_shut, memory_order_acquire), 0))",
        "extern void link_want_turn(void);\n"
        "    if (atomic_load(&gate_shut))\n        link_want_turn(); /* asks, and goes on */\n    if (0)",
    ),
    "one block in a hundred is dropped": (
        "guard/moves.c",
        "chunk->hollow = chunk->empty || !wanted;",
        "static unsigned nth; chunk->hollow = chunk->empty || !wanted || nth++ % 100 == 0;",
    ),
    "the drain is skipped": (
        "guard/contexts.c",
        "    if (!drain->count) {",
        "    if (drain->count || !drain->count) {",
    ),
}


def mutant(name: str, directory: Path) -> Path:
    """The guard with one line of it made wrong."""
    file, line, wrong = MUTANTS[name]
    native = directory / "native"
    shutil.copytree(NATIVE, native, ignore=shutil.ignore_patterns("__pycache__", "*.so*"))
    text = (native / file).read_text()
    assert text.count(line) == 1, f"the mutant {name!r} no longer fits the source"
    (native / file).write_text(text.replace(line, wrong))
    command = build.compiler()
    assert command
    target = directory / "mutant.so"
    sources = map(str, sorted((native / "guard").glob("*.c")))
    subprocess.run(
        [
            *command,
            "-std=gnu11",
            "-O0",
            "-fPIC",
            "-fvisibility=hidden",
            "-pthread",
            "-shared",
            "-w",
            "-o",
            target,
            *sources,
        ],
        check=True,
    )
    return target


#: A stream that does nothing more until it is told to.
HOLD = """
import threading
told = threading.Event()
hold = c.CFUNCTYPE(None, c.c_void_p)(lambda _: told.wait(60) and None)
"""


def finds_loss(world: World, guard: Path) -> bool:
    """Whether the checks of this suite see that something is wrong with a guard."""
    backend = world.backend()
    child = world.child(guard=guard)
    child.do(HOLD)
    child.do("context = start(); k, s, n = Kernels(), stream(), 1 << 18; at = [alloc(4 * n) for _ in range(8)]")
    child.do("[k.fill(a, n, 5, s) for a in at]; sync(s)")
    # Under way when the turn is taken back: the turn isn't drained before it is done.
    child.do("call('cuLaunchHostFunc', s, hold, None); [k.fill(a, n, 7, s) for a in at]")
    link = backend.guard()
    link.easy = False
    epoch = link.close_gate(drain_s=60)
    until(lambda: child.state()["draining"] or link.count("turn_drained"), "the drain")
    early = link.count("turn_drained") > 0
    child.do("told.set()")
    if early:
        return True
    link.wait("turn_drained", epoch=epoch)
    link.evict(1)
    # A call that comes now must wait, and find its memory.
    late = child.begin("call('cuCtxSetCurrent', context); k.add(at[0], at[1], n, s); sync(s)")
    until(lambda: child.ready(late) or child.state()["waiting"] == 1, "the late call")
    link.say("restore_blocks", move=2)
    until(lambda: link.count("blocks_back") or link.count("move_failed"), "the return")
    if link.count("move_failed"):
        return True
    link.easy = True
    link.open()
    try:
        child.end(late)
        return child.do("[words(a, n) for a in at]") != [[14]] + [[7]] * 7
    except ChildError:
        return True


def test_the_true_guard_loses_nothing(world: World) -> None:
    assert not finds_loss(world, world.built / "libsalus_guard.so")


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_guard_is_found_out(world: World, short_tmp: Path, name: str) -> None:
    assert finds_loss(world, mutant(name, short_tmp))
