"""Notebooks on one GPU, from the cell to the driver: real kernels, the real backend, the guard preloaded. Tables in Markdown.

    python -m benchmarks.gpu [--only evictions,moves,handover,trainers,alternating,idle] [--frameworks torch,CuPy,JAX]
    python -m benchmarks.gpu --standin      the same on the stand-in driver, small: to try the script

evictions: a training loses its memory again and again while it runs, to short cells of a notebook for which there is no
room beside it; its losses must be those of an undisturbed run. moves: an idle notebook's memory out by the verb, and back
at its next touch. handover: two trainings in one lane; from the end of one's last step to the begin of the other's
first. trainers: small ones side by side, with Salus and with the driver's time slicing. alternating: two jobs that each
fill the device and work in turn on the host and on it, together and one after the other. idle: notebooks that hold memory
and do nothing, and one more that needs the room.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import itertools
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jupyter_salus.native import build  # noqa: E402
from tests.gpu.machine import Backend, Cell, Kernel, Machine  # noqa: E402

#: What each framework's notebook defines: `hold(units)`, `sums()`, `train(steps)` with its losses, `touch()`.
NOTEBOOKS = {
    "tiny": """
import tinyframe as t, time
def hold(units):
    global held
    held = [t.Tensor(1, i) for i in range(units)]
def sums(): return [x.digest() for x in held]
def begin():
    global model, seen
    model, seen = t.Tensor(1, 7), t.Tensor(1, 3)
def step(i=0):
    model.add(seen).mix(1 + i % 3); t.synchronize()
def train(steps):
    begin(); losses = []
    for i in range(steps):
        step(i)
        if i % 20 == 0: losses.append(model.digest())
    return losses
def touch():
    return t.Tensor(1, 5).digest()
def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: step()
""",
    "torch": """
import torch, time
torch.backends.cuda.matmul.allow_tf32 = False
torch.use_deterministic_algorithms(True)
def hold(units):
    global held
    held = [torch.randint(0, 1 << 30, (UNIT // 8,), device='cuda') for _ in range(units)]
def sums(): return [int(x.sum()) for x in held]
def begin(width=2048):
    global model, optimizer, x, y
    torch.manual_seed(0)
    layers = [m for _ in range(6) for m in (torch.nn.Linear(width, width), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x, y = torch.randn(width, width, device='cuda'), torch.randn(width, width, device='cuda')
def step(i=0):
    optimizer.zero_grad(); loss = ((model(x) - y) ** 2).mean(); loss.backward(); optimizer.step(); return loss.item()
def train(steps):
    begin(); losses = []
    for i in range(steps):
        losses.append(step(i))
    return losses
def touch():
    return float((torch.arange(1 << 20, device='cuda') % 7).sum())
def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: step()
""",
    "CuPy": """
import cupy, time
def hold(units):
    global held
    held = [cupy.random.randint(0, 1 << 30, UNIT // 8) for _ in range(units)]
def sums(): return [int(x.sum()) for x in held]
def begin():
    global w, x
    cupy.random.seed(0)
    w = cupy.random.standard_normal((4096, 4096), dtype=cupy.float32) * 0.01
    x = cupy.random.standard_normal((4096, 4096), dtype=cupy.float32)
def step(i=0):
    global w
    y = cupy.tanh(x @ w); g = x.T @ ((y - x) * (1 - y * y)) / 4096; w -= 0.01 * g
    return float(((y - x) ** 2).mean())
def train(steps):
    begin(); losses = []
    for i in range(steps):
        losses.append(step(i))
    return losses
def touch():
    return float((cupy.arange(1 << 20) % 7).sum())
def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: step()
""",
    "JAX": """
import jax, jax.numpy as jnp, time
def hold(units):
    global held
    key = jax.random.key(0)
    held = [jax.random.randint(key, (UNIT // 4,), 0, 1 << 30) for _ in range(units)]
def sums(): return [int((x & 1023).sum()) for x in held]
def f(w, x):
    y = x
    for m in w: y = jnp.tanh(y @ m)
    return ((y - x) ** 2).mean()
jitted = jax.jit(lambda w, x: (lambda l, g: (l, [a - 0.1 * b for a, b in zip(w, g)]))(*jax.value_and_grad(f)(w, x)))
def begin():
    global w, x
    k = jax.random.split(jax.random.key(0), 8)
    w = [jax.random.normal(i, (2048, 2048)) * 0.02 for i in k[1:7]]
    x = jax.random.normal(k[7], (2048, 2048))
def step(i=0):
    global w
    l, w = jitted(w, x); return float(l)
def train(steps):
    begin(); losses = []
    for i in range(steps):
        losses.append(step(i))
    return losses
def touch():
    return float((jnp.arange(1 << 20) % 7).sum())
def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: step()
""",
}
#: Steps of a training that take some seconds on an H200.
STEPS = {"tiny": 400, "torch": 1500, "CuPy": 2500, "JAX": 5000}


class Bench:
    """One machine after another, each with a backend of its own, and the rows that come of it."""

    def __init__(self, built: Path, standin: bool) -> None:
        self.built = built
        self.standin = standin
        self.unit = 1 << 20 if standin else 1 << 30
        self.name = "MiB" if standin else "GiB"

    @contextlib.contextmanager
    def machine(self, capacity: int, *options: str, **config: Any) -> Iterator[tuple[Machine, Backend]]:
        """A device limited to `capacity` units, its contexts and the reserve left out of that."""
        directory = Path(tempfile.mkdtemp(prefix="js", dir="/tmp"))
        made = Machine(self.built, directory, capacity_mib=capacity + 8 * 12 + 8, real=not self.standin)
        made.environment.update(CUBLAS_WORKSPACE_CONFIG=":4096:8", TF_CPP_MIN_LOG_LEVEL="2")
        if not self.standin:
            options = (f"--capacity={capacity}GiB", "--reserve=1GiB", *options)
        try:
            yield made, made.backend(*options, **config)
        except Exception:
            for backend in made.backends:
                print(backend.log.read_text()[-3000:], flush=True)
            raise
        finally:
            made.stop()
            shutil.rmtree(directory, ignore_errors=True)

    def kernel(self, machine: Machine, framework: str, name: str) -> Kernel:
        kernel = machine.kernel(f"{name}.ipynb")
        kernel.run(f"UNIT = {self.unit}\n" + NOTEBOOKS[framework])
        return kernel

    def kernels(self, machine: Machine, frameworks: list[str], name: str) -> list[Kernel]:
        """Started all at once: imports take their seconds side by side."""
        with concurrent.futures.ThreadPoolExecutor(len(frameworks)) as pool:
            return list(pool.map(lambda one: self.kernel(machine, one[1], f"{name}{one[0]}"), enumerate(frameworks)))

    # ---- the parts -----------------------------------------------------------------------------------------------------

    def evictions(self, frameworks: list[str]) -> list[str]:
        rows = ["| framework | memory | evictions while it trained | losses | other bytes |", "|" + " --- |" * 5]
        for framework in frameworks:
            with self.machine(16, "--policy=priority") as (machine, backend):
                steps = STEPS[framework]
                alone = self.kernel(machine, framework, "alone")
                expected = alone.run(f"losses = train({steps})", "losses")
                machine.drop(alone)
                victim, short = self.kernel(machine, framework, "victim"), self.kernel(machine, framework, "short")
                before = victim.run("hold(8)", "sums()")
                short.run("hold(6)", "sums()")
                backend.act("priority", short, "high")
                cell = victim.begin(f"losses = train({steps})", "losses")
                chance, asked = random.Random(5), 0
                while not cell.done and asked < 12:
                    time.sleep(chance.random() * 0.5)
                    short.run("touch()", "len(sums())")
                    asked += 1
                losses = victim.value(cell)
                row = backend.session(victim)
                same = "same" if victim.run("", "sums()") == before else "LOST"
                told = "identical" if losses == expected else "DIFFERENT"
                held = row["peak_persistent_bytes"] / self.unit
                rows.append(
                    f"| {framework} | {held:.1f} {self.name} | {row['evictions']} of {asked} | {told} ({len(losses)}) | {same} |"
                )
                print(rows[-1], flush=True)
        return rows

    def moves(self, frameworks: list[str]) -> list[str]:
        rows = ["| framework | held | out by the verb, s | back at its next cell, s | bytes |", "|" + " --- |" * 5]
        for framework in frameworks:
            with self.machine(40) as (machine, backend):
                kernel = self.kernel(machine, framework, "held")
                before = kernel.run("hold(8)", "sums()")
                for turn in range(4):
                    backend.until(kernel, state="holding")
                    t = time.monotonic()
                    backend.act("evict", kernel)
                    while backend.session(kernel)["state"] != "evicted":
                        time.sleep(0.002)
                    out = time.monotonic() - t
                    left = machine.used()
                    back = kernel.run("t0 = time.monotonic(); touch(); t1 = time.monotonic()", "t1 - t0")
                    plain = kernel.run("t0 = time.monotonic(); touch(); t1 = time.monotonic()", "t1 - t0")
                    same = "same" if kernel.run("", "sums()") == before else "LOST"
                    note = "arena untouched" if turn == 0 else f"warm, {turn}"
                    speeds = [8 * self.unit / max(s, 1e-9) / (1 << 30) for s in (out, back - plain)]
                    rows.append(
                        f"| {framework}, {note} | 8 {self.name} | {out:.3f} ({speeds[0]:.1f} GiB/s) | {back - plain:.3f} "
                        f"({speeds[1]:.1f} GiB/s) | {same}, {left / (1 << 20):.0f} MiB left |"
                    )
                    print(rows[-1], flush=True)
        return rows

    def handover(self, frameworks: list[str]) -> list[str]:
        rows = ["| framework | hand-overs | p50, ms | p90 | p99 |", "|" + " --- |" * 5]
        loop = (
            "begin(); times = []\nstop = time.monotonic() + 6\n"
            "while time.monotonic() < stop:\n    a = time.monotonic(); step(); times.append((a, time.monotonic()))"
        )
        for framework in frameworks:
            with self.machine(40, lanes="one") as (machine, _):
                pair = self.kernels(machine, [framework] * 2, "job")
                for kernel in pair:
                    kernel.run("begin()\nfor i in range(3): step()")
                cells = [kernel.begin(loop, "times") for kernel in pair]
                steps = sorted((end, begin, n) for n, cell in enumerate(cells) for begin, end in pair[n].value(cell))
                usual = statistics.median(end - begin for end, begin, _ in steps)
                # The first step after a hand-over began before the turn came, and waited in its first call.
                gaps = [
                    (later[0] - earlier[0] - usual) * 1e3
                    for earlier, later in itertools.pairwise(steps)
                    if earlier[2] != later[2]
                ]
                if not gaps:
                    rows.append(f"| {framework} | none | | | |")
                    continue
                gaps.sort()
                p50, p90, p99 = (gaps[min(len(gaps) - 1, int(len(gaps) * q))] for q in (0.5, 0.9, 0.99))
                rows.append(
                    f"| {framework} (a step takes {usual * 1e3:.2f} ms) | {len(gaps)} | {p50:.2f} | {p90:.2f} | {p99:.2f} |"
                )
                print(rows[-1], flush=True)
        return rows

    def trainers(self, frameworks: list[str]) -> list[str]:
        rows = [
            "| trainers | alone, steps/s | 4 with Salus | 4 with the driver's time slicing | ratio |",
            "|" + " --- |" * 5,
        ]
        # What pays side by side is found out in the first seconds; the last eight of each run are counted.
        loop = (
            "n = 0; begun = time.monotonic()\nwhile (now := time.monotonic() - begun) < {0} + 8:\n"
            "    step(); n += now > {0}"
        )
        width = {"torch": "begin(256)"}
        for framework in frameworks[:1]:
            totals: dict[str, float] = {}
            for mode in ("Salus", "plain"):
                with self.machine(60) as (machine, _):
                    if mode == "plain":
                        machine.environment["JUPYTER_SALUS_GUARD"] = "off"
                    kernels = self.kernels(machine, [framework] * 4, mode)
                    begin = width.get(framework, "begin()")
                    for kernel in kernels:
                        kernel.run(f"{begin}\nfor i in range(20): step()")
                    if mode == "plain":
                        for kernel in kernels:  # nobody governs: the backend is gone, as where there is none
                            assert kernel.run("", "'libsalus_guard' in open('/proc/self/maps').read()") is False
                        machine.backends[0].kill()
                    totals["alone " + mode] = kernels[0].run(loop.format(2), "n") / 8
                    cells = [kernel.begin(loop.format(20 if mode == "Salus" else 2), "n") for kernel in kernels]
                    totals[mode] = sum(k.value(c) for k, c in zip(kernels, cells, strict=True)) / 8
            rows.append(
                f"| {framework}, small | {totals['alone plain']:.0f} (with Salus {totals['alone Salus']:.0f}) "
                f"| {totals['Salus']:.0f} | {totals['plain']:.0f} | {totals['Salus'] / totals['plain']:.3f} |"
            )
            print(rows[-1], flush=True)
        return rows

    def alternating(self, frameworks: list[str], seconds: float = 5.0, rounds: int = 3) -> list[str]:
        if self.standin:
            seconds = 1.0
        rows = ["| jobs | one after the other, s | together, s | ratio |", "|" + " --- |" * 4]
        job = f"for r in range({rounds}):\n    time.sleep({seconds}); work({seconds}); touch()"
        for framework in frameworks[:1]:
            with self.machine(24) as (machine, backend):
                pair = self.kernels(machine, [framework] * 2, "job")
                before = []
                for kernel in pair:
                    before.append(kernel.run("hold(16); begin(); step()", "sums()"))
                t = time.monotonic()
                pair[0].run(job)
                one = time.monotonic() - t
                t = time.monotonic()
                cells: list[Cell] = [kernel.begin(job) for kernel in pair]
                for kernel, cell in zip(pair, cells, strict=True):
                    kernel.value(cell)
                both = time.monotonic() - t
                moves = sum(backend.session(kernel)["evictions"] for kernel in pair)
                same = all(kernel.run("", "sums()") == b for kernel, b in zip(pair, before, strict=True))
                rows.append(
                    f"| {framework}, 16 {self.name} each of 24, {rounds} times {seconds:g} s and {seconds:g} s "
                    f"| {2 * one:.1f} | {both:.1f} | {both / (2 * one):.2f}, {moves} moves, bytes {'same' if same else 'LOST'} |"
                )
                print(rows[-1], flush=True)
        return rows

    def idle(self, frameworks: list[str]) -> list[str]:
        rows = ["| notebook | got | took, s | afterwards |", "|" + " --- |" * 4]
        # Contexts stay on the device, so that ten of them and the last one's bytes must fit.
        with self.machine(20) as (machine, backend):
            held: list[tuple[Kernel, Any]] = []
            kinds = [frameworks[n % len(frameworks)] for n in range(10)]
            for n, kernel in enumerate(self.kernels(machine, kinds, "idle")):
                t = time.monotonic()
                held.append((kernel, kernel.run("hold(5)", "sums()")))
                rows.append(
                    f"| {n + 1} ({frameworks[n % len(frameworks)]}) | 5 {self.name} | {time.monotonic() - t:.2f} | |"
                )
                print(rows[-1], flush=True)
            last = self.kernel(machine, frameworks[0], "eleventh")
            t = time.monotonic()
            last.run("hold(10)", "len(sums())")
            rows.append(f"| 11 | 10 {self.name} | {time.monotonic() - t:.2f} | |")
            states = [backend.session(kernel)["state"] for kernel, _ in held]
            good = sum(kernel.run("", "sums()") == before for kernel, before in held)
            rows.append(
                f"| the ten again | | | {good} of 10 with the same bytes; before: {states.count('evicted')} out |"
            )
            print(rows[-1], flush=True)
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="evictions,moves,handover,trainers,alternating,idle")
    parser.add_argument("--frameworks", default="torch,CuPy,JAX")
    parser.add_argument("--standin", action="store_true")
    options = parser.parse_args()
    frameworks = ["tiny"] if options.standin else options.frameworks.split(",")
    cache = Path(tempfile.gettempdir()) / f"jupyter-salus-native-{os.getuid()}"
    built = build.cached(cache, print)
    if built is None:
        raise SystemExit(1)
    bench = Bench(built, options.standin)
    parts: dict[str, Callable[[list[str]], list[str]]] = {
        "evictions": bench.evictions,
        "moves": bench.moves,
        "handover": bench.handover,
        "trainers": bench.trainers,
        "alternating": bench.alternating,
        "idle": bench.idle,
    }
    tables: list[list[str]] = []
    for part in options.only.split(","):
        began = time.monotonic()
        print(f"--- {part}", flush=True)
        try:
            tables.append(parts[part](frameworks))
        except Exception as error:
            tables.append([f"{part} failed: {type(error).__name__}: {str(error)[-1500:]}"])
            print(tables[-1][0], flush=True)
        print(f"    {time.monotonic() - began:.0f} s", flush=True)
    print("\n" + "\n\n".join("\n".join(table) for table in tables), flush=True)


if __name__ == "__main__":
    main()
