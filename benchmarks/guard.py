"""What the guard costs and how fast it moves memory, on a real GPU: a table in Markdown at the end.

    python benchmarks/guard.py [--only losses,moves,launches,symbols] [--gib 8]

losses: torch, CuPy and JAX train once undisturbed and once while turns are taken back at random times and all memory goes
out and comes back; every loss must be the same to the last digit. moves: from the backend's word to the guard's reply,
with blocks as torch makes them, the host arena untouched and warm. launches: the smallest kernel of torch and CuPy,
without pause, with and without the guard, in turn. symbols: names that the driver exports and the guard's table lacks.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jupyter_salus.native import build  # noqa: E402
from tests.native.backend import Backend, Guard  # noqa: E402

GIB = 1 << 30
#: As many as make some seconds of work.
STEPS = {"torch": 300, "CuPy": 500, "JAX": 1500}

TORCH = """
import torch, hashlib
torch.manual_seed(0); torch.backends.cuda.matmul.allow_tf32 = False
torch.use_deterministic_algorithms(True)
ballast = [torch.randint(0, 1 << 30, (GIB // 8,), device='cuda') for _ in range(BALLAST)]
sums = [int(b.sum()) for b in ballast]
model = torch.nn.Sequential(*[m for _ in range(6) for m in (torch.nn.Linear(2048, 2048), torch.nn.GELU())]).cuda()
step = torch.optim.Adam(model.parameters(), lr=1e-4)
x = torch.randn(2048, 2048, device='cuda'); y = torch.randn(2048, 2048, device='cuda')
losses = []
for i in range(STEPS):
    step.zero_grad(); loss = ((model(x) - y) ** 2).mean(); loss.backward(); step.step(); losses.append(loss.item())
    tick(i)
assert sums == [int(b.sum()) for b in ballast], 'bytes were lost'
"""

CUPY = """
import cupy
cupy.random.seed(0)
ballast = [cupy.random.randint(0, 1 << 30, GIB // 8) for _ in range(BALLAST)]
sums = [int(b.sum()) for b in ballast]
w = cupy.random.standard_normal((4096, 4096), dtype=cupy.float32) * 0.01
x = cupy.random.standard_normal((4096, 4096), dtype=cupy.float32)
losses = []
for i in range(STEPS):
    y = cupy.tanh(x @ w); g = x.T @ ((y - x) * (1 - y * y)) / 4096; w -= 0.01 * g
    losses.append(float(((y - x) ** 2).mean()))
    tick(i)
assert sums == [int(b.sum()) for b in ballast], 'bytes were lost'
"""

JAX = """
import jax, jax.numpy as jnp
k = jax.random.split(jax.random.key(0), 8)
ballast = [jax.random.randint(k[0], (GIB // 4,), 0, 1 << 30) for _ in range(BALLAST)]
sums = [int((b & 1023).sum()) for b in ballast]
w = [jax.random.normal(i, (2048, 2048)) * 0.02 for i in k[1:7]]
x = jax.random.normal(k[7], (2048, 2048))
def f(w, x):
    y = x
    for m in w: y = jnp.tanh(y @ m)
    return ((y - x) ** 2).mean()
step = jax.jit(lambda w, x: (lambda l, g: (l, [a - 0.1 * b for a, b in zip(w, g)]))(*jax.value_and_grad(f)(w, x)))
losses = []
for i in range(STEPS):
    l, w = step(w, x); losses.append(float(l))
    tick(i)
assert sums == [int((b & 1023).sum()) for b in ballast], 'bytes were lost'
"""

BLOCKS = """
import torch
held = [torch.randint(0, 1 << 30, (GIB // 8,), device='cuda') for _ in range(BALLAST)]
sums = [int(b.sum()) for b in held]
say('ready')
for line in sys.stdin:
    say([int(b.sum()) for b in held] == sums)
"""

LAUNCH = {
    "torch": """
import torch
x = torch.zeros(32, device='cuda'); sync = torch.cuda.synchronize
def go(n):
    for _ in range(n): x.add_(1)
""",
    "CuPy": """
import cupy
x = cupy.zeros(32, dtype=cupy.float32); sync = cupy.cuda.Device().synchronize
def go(n):
    for _ in range(n): cupy.add(x, 1, out=x)
""",
}
TIME_IT = """
go(20000); sync(); times = []
for _ in range(9):
    t = time.perf_counter(); go(20000); sync(); times.append((time.perf_counter() - t) / 20000)
say(min(times))
"""
PROLOGUE = """
import json, os, sys, time
GIB = 1 << 30
out = os.fdopen(os.dup(1), 'w'); os.dup2(2, 1)
def say(value): print(json.dumps(value), file=out, flush=True)
def tick(i):
    if i == 4: say('warm')
"""


class Program:
    """A process that runs `code`, under the guard if it is given."""

    def __init__(self, code: str, guard: Path | None, directory: Path, **values: int) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER_SALUS_", "LD_PRELOAD"))}
        env.update(XLA_PYTHON_CLIENT_PREALLOCATE="false", CUBLAS_WORKSPACE_CONFIG=":4096:8")
        self.backend: Backend | None = None
        if guard is not None:
            self.backend = Backend(directory / f"s{time.monotonic_ns()}", easy=True)
            env.update(LD_PRELOAD=str(guard), JUPYTER_SALUS_SOCKET=str(self.backend.address), JUPYTER_SALUS_SESSION="b")
            env.update(JUPYTER_SALUS_GUARD_LOG=str(directory / "log"))
        head = PROLOGUE + "".join(f"{name} = {value}\n" for name, value in values.items())
        self.process = subprocess.Popen(
            [sys.executable, "-c", head + code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the program ended with {self.process.wait()}")
        return json.loads(line)

    def ask(self) -> Any:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.read()

    @property
    def guard(self) -> Guard:
        assert self.backend
        return self.backend.guard()

    def stop(self) -> None:
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait(60)
        if self.backend:
            self.backend.stop()


def train(name: str, code: str, guard: Path | None, directory: Path, times: int, gib: int) -> dict[str, Any]:
    """Losses, and what happened to the session while they were made. The program stays until it is told to go."""
    program = Program(code + "say(losses)\nsys.stdin.read()\n", guard, directory, STEPS=STEPS[name], BALLAST=gib)
    assert program.read() == "warm"
    losses: list[Any] = []
    reader = threading.Thread(target=lambda: losses.append(program.read()), daemon=True)
    reader.start()
    gates: list[float] = []
    moved, reason = 0, None
    if guard is not None:
        chance = random.Random(11)
        link = program.guard
        link.easy = False
        for move in range(times):
            time.sleep(chance.random() * 0.3)
            if losses:
                break
            began = time.monotonic()
            link.drain()
            gates.append(time.monotonic() - began)
            moved = link.evict(2 * move + 1)["bytes"]
            time.sleep(0.05)
            link.restore(2 * move + 2)
            link.open()
        link.easy = True
        reason = [m.get("reason") for m in link.heard if m.get("kind") == "memory"][-1]
    reader.join(120)
    program.stop()
    return {"losses": losses[0] if losses else None, "gates": gates, "moved": moved, "reason": reason}


def losses(guard: Path, directory: Path, gib: int) -> list[str]:
    rows = [
        "| trainer | preemptions | moved each time | gate and drain, median (worst) | losses | unmovable |",
        "|" + " --- |" * 6,
    ]
    for name, code in (("torch", TORCH), ("CuPy", CUPY), ("JAX", JAX)):
        try:
            plain = train(name, code, None, directory, 0, gib)
            guarded = train(name, code, guard, directory, 10, gib)
            same = plain["losses"] is not None and plain["losses"] == guarded["losses"]
            gates = [g * 1e3 for g in guarded["gates"]]
            rows.append(
                f"| {name} | {len(gates)} | {guarded['moved'] / GIB:.2f} GiB "
                f"| {statistics.median(gates):.1f} ms ({max(gates):.1f}) "
                f"| {'identical' if same else 'DIFFERENT'} ({len(plain['losses'])}) | {guarded['reason']} |"
            )
        except (RuntimeError, TimeoutError, AssertionError) as error:
            rows.append(f"| {name} | failed: {str(error)[-300:]} | | | | |")
        print(rows[-1], flush=True)
    return rows


def moves(guard: Path, directory: Path, gib: int) -> list[str]:
    rows = [f"| {gib} GiB in blocks of 1 GiB | out, GiB/s | back, GiB/s | bytes |", "|" + " --- |" * 4]
    program = Program(BLOCKS, guard, directory, BALLAST=gib)
    assert program.read() == "ready"
    link = program.guard
    for turn in range(6):
        link.drain()
        t = time.monotonic()
        out = link.evict(2 * turn + 1)
        middle = time.monotonic()
        back = link.restore(2 * turn + 2)
        end = time.monotonic()
        link.easy = True
        link.open()
        same = program.ask()
        size = out["bytes"] / GIB
        name = "arena untouched" if turn == 0 else f"warm, {turn}"
        rows.append(
            f"| {name} | {size / (middle - t):.1f} | {size / (end - middle):.1f} | {'same' if same else 'LOST'} |"
        )
        print(rows[-1], out["seconds"], back["seconds"], flush=True)
    program.stop()
    return rows


def launches(guard: Path, directory: Path) -> list[str]:
    rows = ["| smallest kernel | without, µs | with, µs | ratio of medians |", "|" + " --- |" * 4]
    for name, code in LAUNCH.items():
        samples: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(3):
            for guarded in (False, True):
                program = Program(code + TIME_IT, guard if guarded else None, directory)
                samples[guarded].append(program.read() * 1e6)
                program.stop()
        plain, with_guard = (statistics.median(samples[g]) for g in (False, True))
        shown = [" ".join(f"{s:.2f}" for s in samples[g]) for g in (False, True)]
        rows.append(f"| {name} | {shown[0]} | {shown[1]} | {with_guard / plain:.3f} |")
        print(rows[-1], flush=True)
    return rows


def symbols() -> list[str]:
    """Names of the driver of this machine that the table lacks: those of its public interface begin with cu and a capital."""
    library = next(
        (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcuda.so" in line), None
    )
    if library is None:
        import ctypes

        ctypes.CDLL("libcuda.so.1")
        return symbols()
    text = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1].split("@")[0] for line in text.splitlines()}
    public = {name for name in names if name[:2] == "cu" and name[2:3].isupper()}
    table = (ROOT / "jupyter_salus/native/guard/symbols.def").read_text()
    known = {line.split("(")[1].split(",")[0].rstrip(")") for line in table.splitlines() if "(cu" in line}
    missing = sorted(public - known)
    return [f"{len(public)} names exported, not in the table: {len(missing)}", " ".join(missing)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="symbols,launches,moves,losses")
    parser.add_argument("--gib", type=int, default=8)
    options = parser.parse_args()
    tables: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="js", dir="/tmp") as name:
        directory = Path(name)
        guard = build.build(directory, print)
        if guard is None:
            raise SystemExit(1)
        parts: dict[str, Callable[[], list[str]]] = {
            "symbols": symbols,
            "launches": lambda: launches(guard, directory),
            "moves": lambda: moves(guard, directory, options.gib),
            "losses": lambda: losses(guard, directory, options.gib),
        }
        for part in options.only.split(","):
            print(f"--- {part}", flush=True)
            try:
                tables.append(parts[part]())
            except (TimeoutError, RuntimeError) as error:
                tables.append([f"{part} failed: {error}"])
                print(tables[-1][0], flush=True)
        log = directory / "log"
        if log.exists():
            print(*sorted(set(log.read_text().splitlines())), sep="\n")
    print("\n" + "\n\n".join("\n".join(table) for table in tables))


if __name__ == "__main__":
    main()
