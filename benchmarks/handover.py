"""How long a turn's hand-over takes, beyond the iteration in flight: `python -m benchmarks.handover`.

Two kernels run a loop of NumPy products and log the machine's monotonic clock before and after each. Where one's last
iteration of a turn is followed by the other's first, the time between them is the hand-over: the boundary is found, the
turn given back, decided about and granted, the other thread woken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from itertools import groupby, pairwise

from benchmarks.kernels import kernel, quantile
from jupyter_salus.cli.own_backend import own_backend

CELL = """
import time
import numpy as np
square = np.random.default_rng(0).normal(size=({size}, {size}))
log, until = [], time.monotonic() + {seconds}
while time.monotonic() < until:
    started = time.monotonic()
    square @ square
    log.append((started, time.monotonic()))
"""


async def measure(socket: str, seconds: float, size: int) -> list[list[tuple[float, float]]]:
    """The iterations of two kernels that contend for `seconds`."""
    async with kernel(socket, "first") as first, kernel(socket, "second") as second:
        code = CELL.format(size=size, seconds=seconds)
        logs = await asyncio.gather(first.value(code, "log"), second.value(code, "log"))
    return [[(start, end) for start, end in log] for log in logs]


def handovers(logs: list[list[tuple[float, float]]]) -> list[float]:
    """Seconds from the end of one's last iteration to the start of the other's first. What ran before both had had a
    turn is left out."""
    begun = max(log[0][0] for log in logs) + 0.5
    all_of_them = sorted((start, end, who) for who, log in enumerate(logs) for start, end in log if start > begun)
    turns = [list(turn) for _, turn in groupby(all_of_them, key=lambda one: one[2])]
    return [following[0][0] - turn[-1][1] for turn, following in pairwise(turns)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the two contend")
    parser.add_argument("--size", type=int, default=400, help="rows of the square matrix: sets an iteration's length")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with own_backend(["--device=host"]) as socket:
        logs = asyncio.run(measure(socket, arguments.seconds, arguments.size))
    gaps = handovers(logs)
    if not gaps:
        raise SystemExit("cannot measure: the two never alternated")
    iterations = [end - start for log in logs for start, end in log]
    figures = {
        "handovers": len(gaps),
        "p50_ms": round(quantile(gaps, 0.5) * 1e3, 3),
        "p99_ms": round(quantile(gaps, 0.99) * 1e3, 3),
        "iteration_ms": round(quantile(iterations, 0.5) * 1e3, 3),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    print("| hand-overs | p50 | p99 | iteration (p50) | cores | load before |")
    print("| --- | --- | --- | --- | --- | --- |")
    row = [f"{figures['handovers']}", *(f"{figures[name]} ms" for name in ("p50_ms", "p99_ms", "iteration_ms"))]
    print(f"| {' | '.join(row)} | {figures['cores']} | {figures['load']} |")


if __name__ == "__main__":
    main()
