"""What a kernel's start costs through jupyter_salus, taken apart: `python -m benchmarks.start`.

Pairs of kernels, one plain and one a session, in random order within each pair. For each: what the manager takes until the
process is launched (the session is announced there), until the kernel answers, and the CPU time of the manager's process
and of the kernel's, which other programs disturb less. Beside them the guest's own part: what its modules take to import
in an interpreter that has ipykernel already. Where real-time priority is permitted, `chrt -r 5` before the command makes
the figures those of a quiet machine, nearly.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from jupyter_client.manager import AsyncKernelManager

from benchmarks.alone import interval
from benchmarks.kernels import ENVIRONMENT
from jupyter_salus.cli.own_backend import own_backend
from jupyter_salus.manager import NotebookKernelManager
from jupyter_salus.manager.injection import BOOT_DIRECTORY, BOOT_MODULE

#: What is measured of each kernel, in milliseconds, and what it is called.
PHASES = {
    "launched": "until its process is launched",
    "manager_cpu": "CPU of the manager meanwhile",
    "answers": "until it answers",
    "kernel_cpu": "CPU of the kernel meanwhile",
}
_IMPORTS = f"""
import sys, time
import ipykernel.kernelapp, ipykernel.zmqshell
sys.path.insert(0, {BOOT_DIRECTORY!r})
boot = __import__({BOOT_MODULE!r})
boot._register()
began = time.process_time()
import _jupyter_salus.guest.starting
print(1e3 * (time.process_time() - began))
"""


async def one(socket: str | None) -> dict[str, float]:
    """The phases of one kernel's start."""
    manager: Any = AsyncKernelManager() if socket is None else NotebookKernelManager(salus_socket=socket)
    began, cpu = time.perf_counter(), time.process_time()
    await manager.start_kernel(env={**os.environ, **ENVIRONMENT}, stderr=-3)
    launched, manager_cpu = time.perf_counter() - began, time.process_time() - cpu
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=120)
        answers = time.perf_counter() - began
        kernel_cpu = _cpu_s(manager.provisioner.pid)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)
    found = {"launched": launched, "manager_cpu": manager_cpu, "answers": answers, "kernel_cpu": kernel_cpu}
    return {phase: 1e3 * seconds for phase, seconds in found.items()}


def _cpu_s(pid: int) -> float:
    """Of all threads that a process has."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


async def pairs(socket: str, count: int) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Plain and through Salus, `count` times."""
    order = random.Random(1)
    await one(None), await one(socket)  # the first ones read everything from the disk, and make the connection
    found = []
    for _ in range(count):
        if order.random() < 0.5:
            plain, ours = await one(None), await one(socket)
        else:
            ours, plain = await one(socket), await one(None)
        found.append((plain, ours))
    return found


def imports_ms() -> float:
    """The least of five: CPU of importing the guest."""
    done = [
        subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True) for _ in "12345"
    ]
    return min(float(one.stdout) for one in done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=20)
    arguments = parser.parse_args()
    with own_backend(["--device=host"]) as socket:
        found = asyncio.run(pairs(socket, arguments.pairs))
    load = round(os.getloadavg()[0], 2)
    print(f"{arguments.pairs} pairs, {len(os.sched_getaffinity(0))} cores, load {load} at the end\n")
    print("| a kernel's start, in ms | plain, least | session, least | more by (median) | 95 % interval |")
    print("| --- | --- | --- | --- | --- |")
    for phase, text in PHASES.items():
        least = [min(pair[kind][phase] for pair in found) for kind in (0, 1)]
        median, low, high = interval([ours[phase] - plain[phase] for plain, ours in found])
        print(f"| {text} | {least[0]:.1f} | {least[1]:.1f} | {median:.1f} | {low:.1f} to {high:.1f} |")
    print(f"| CPU of importing the guest | | {imports_ms():.1f} | | |")


if __name__ == "__main__":
    main()
