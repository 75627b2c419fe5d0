"""What running alone through jupyter_salus costs: `python -m benchmarks.alone`.

Pairs of kernels, one plain and one a session that nobody contends with, in random order within each pair. For each pair:
the loop's speed, the start of a cell, the start of the kernel. Intervals are 95 % ones of the median, by bootstrap over
the pairs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import time

from benchmarks.kernels import kernel, quantile
from jupyter_salus.cli.own_backend import own_backend

LOOP = """
import time
import numpy as np
square = np.random.default_rng(0).normal(size=(200, 200))
for _ in range(200):
    square @ square
started = time.perf_counter()
total = 0
for number in range({iterations}):
    square @ square
    for inner in range(200):
        total += inner
took = time.perf_counter() - started
"""
CELLS = 200


async def one(socket: str | None, iterations: int) -> dict[str, float]:
    """The figures of one kernel, in seconds."""
    begun = time.perf_counter()
    async with kernel(socket, "alone") as measured:
        started_s = time.perf_counter() - begun
        loop_s = await measured.value(LOOP.format(iterations=iterations), "took")
        cells = []
        for _ in range(CELLS):
            sent = time.time()
            there = await measured.value("import time; there = time.time()", "there")
            cells.append(there - sent)
    return {
        "kernel_start_s": started_s,
        "loop_s": loop_s,
        "cell_p50_s": quantile(cells, 0.5),
        "cell_p99_s": quantile(cells, 0.99),
    }


async def pairs(socket: str, count: int, iterations: int) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Plain and through Salus, `count` times."""
    order = random.Random(1)
    found = []
    await one(None, 100)  # the first kernel of a machine reads everything from its disk
    for _ in range(count):
        if order.random() < 0.5:
            plain, ours = await one(None, iterations), await one(socket, iterations)
        else:
            ours, plain = await one(socket, iterations), await one(None, iterations)
        found.append((plain, ours))
    return found


def interval(values: list[float]) -> tuple[float, float, float]:
    """The median and its 95 % interval."""
    draw = random.Random(2)
    medians = [quantile([draw.choice(values) for _ in values], 0.5) for _ in range(2000)]
    return quantile(values, 0.5), quantile(medians, 0.025), quantile(medians, 0.975)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--iterations", type=int, default=10_000, help="of the measured loop")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with own_backend(["--device=host"]) as socket:
        found = asyncio.run(pairs(socket, arguments.pairs, arguments.iterations))
    figures = {
        "loop_percent": interval([100 * (ours["loop_s"] / plain["loop_s"] - 1) for plain, ours in found]),
        "cell_p50_ms": interval([1e3 * (ours["cell_p50_s"] - plain["cell_p50_s"]) for plain, ours in found]),
        "cell_p99_ms": interval([1e3 * (ours["cell_p99_s"] - plain["cell_p99_s"]) for plain, ours in found]),
        "kernel_start_ms": interval(
            [1e3 * (ours["kernel_start_s"] - plain["kernel_start_s"]) for plain, ours in found]
        ),
    }
    load = round(os.getloadavg()[0], 2)
    if arguments.json:
        print(json.dumps({"pairs": arguments.pairs, "load": load, **figures}))
        return
    named = {
        "loop_percent": ("a loop takes longer by", "%"),
        "cell_p50_ms": ("a cell starts later by (p50)", "ms"),
        "cell_p99_ms": ("a cell starts later by (p99)", "ms"),
        "kernel_start_ms": ("a kernel starts later by", "ms"),
    }
    print(f"{arguments.pairs} pairs, {len(os.sched_getaffinity(0))} cores, load {load} at the end\n")
    print("| running alone | median | 95 % interval |")
    print("| --- | --- | --- |")
    for name, (text, unit) in named.items():
        median, low, high = figures[name]
        print(f"| {text} | {median:.2f} {unit} | {low:.2f} to {high:.2f} {unit} |")


if __name__ == "__main__":
    main()
