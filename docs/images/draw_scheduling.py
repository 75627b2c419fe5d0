"""Draws `scheduling.svg`: five jobs on one device, from the log of a simulated run.

`python docs/images/draw_scheduling.py` writes it beside itself. The upper part shows what of the device's memory is taken,
the lower one a row for each job: running, resident and waiting, in host memory, or being moved.
"""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from jupyter_salus.simulate.log import Log
from jupyter_salus.simulate.machine import Machine
from jupyter_salus.simulate.model import DeviceModel
from jupyter_salus.simulate.profiles import Workload
from jupyter_salus.simulate.settings import Settings
from jupyter_salus.simulate.table import MIB
from jupyter_salus.simulate.trace import Job

CAPACITY_MIB = 12_000
#: name: (P MiB, E MiB, seconds of an iteration, share of the device, iterations, arrival)
JOBS = {
    "large": (1800, 8600, 0.20, 1.00, 70, 0.0),
    "small a": (500, 1500, 0.05, 0.45, 110, 4.0),
    "small b": (500, 1600, 0.05, 0.45, 110, 5.0),
    "small c": (500, 1500, 0.05, 0.45, 90, 6.0),
    "late": (1500, 9800, 0.15, 1.00, 35, 15.0),
}
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756")
WIDTH, LEFT, TOP, MEMORY, ROW, GAP = 860, 80, 34, 150, 26, 10


def simulate() -> list[dict[str, Any]]:
    """The log of the run, under `srtf` with learned lengths."""
    jobs = [
        Job(name, Workload(name, p * MIB, e * MIB, seconds, 0.0, share), count, at, 0.0, "normal", 0)
        for name, (p, e, seconds, share, count, at) in JOBS.items()
    ]
    stream = io.StringIO()
    Machine(jobs, Settings("srtf", DeviceModel(CAPACITY_MIB * MIB)), Log(stream)).run()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def spans(lines: list[dict[str, Any]], begins: str, ends: tuple[str, ...]) -> dict[str, list[tuple[float, float]]]:
    """By job: from each line of one kind to the next of the others."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in JOBS}
    since: dict[str, float] = {}
    for line in lines:
        job = line["job"]
        if line["event"] == begins:
            since.setdefault(job, line["t"])
        elif line["event"] in ends and job in since:
            found[job].append((since.pop(job), line["t"]))
    return found


def merged(pieces: list[tuple[float, float]], hole: float) -> list[tuple[float, float]]:
    """Neighbours less than `hole` apart as one: hand-overs and short alternation aren't visible anyway."""
    result: list[tuple[float, float]] = []
    for begin, end in pieces:
        if result and begin - result[-1][1] < hole:
            result[-1] = (result[-1][0], end)
        else:
            result.append((begin, end))
    return result


def memory(lines: list[dict[str, Any]]) -> list[tuple[float, float, float]]:
    """(time, P of residents, lanes), in MiB, at each change."""
    held: dict[str, float] = {}
    lanes: dict[str, float] = {}
    steps = []
    for line in lines:
        if line["event"] == "resident":
            held[line["job"]] = line["p_mib"]
        elif line["event"] in ("evict", "finish"):
            held.pop(line["job"], None)
        elif line["event"] == "lane_size":
            lanes[line["lane"]] = line["e_mib"]
        else:
            continue
        steps.append((line["t"], sum(held.values()), sum(lanes.values())))
    return steps


def draw(lines: list[dict[str, Any]]) -> str:
    """The picture."""
    end = float(lines[-1]["t"])
    bottom = TOP + MEMORY + 40 + len(JOBS) * (ROW + GAP)

    def x(time_s: float) -> float:
        return LEFT + (WIDTH - LEFT - 20) * time_s / end

    def y(mib: float) -> float:
        return TOP + MEMORY * (1 - mib / (CAPACITY_MIB * 1.08))

    def rect(begin: float, end: float, top: float, height: float, style: str) -> str:
        size = f'width="{x(end) - x(begin):.2f}" height="{height:.2f}"'
        return f'<rect x="{x(begin):.2f}" y="{top:.2f}" {size} {style}/>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 34}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{bottom + 34}" fill="white"/>',
        f'<text x="{LEFT}" y="18">Memory taken: persistent (dark) and lanes (light), of {CAPACITY_MIB:,} MiB</text>',
    ]
    steps = [*memory(lines), (end, 0.0, 0.0)]
    for (begin, held, lanes), (until, _, _) in pairwise(steps):
        if until > begin:
            parts.append(rect(begin, until, y(held), y(0.0) - y(held), 'fill="#55677d"'))
            parts.append(rect(begin, until, y(held + lanes), y(held) - y(held + lanes), 'fill="#b9c8da"'))
    limit = f'y1="{y(CAPACITY_MIB):.1f}" y2="{y(CAPACITY_MIB):.1f}"'
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" {limit} stroke="#c33" stroke-dasharray="5 3"/>')
    parts.append(f'<text x="{LEFT - 6}" y="{y(CAPACITY_MIB) + 4:.1f}" text-anchor="end" fill="#c33">capacity</text>')
    running = spans(lines, "run", ("stop",))
    resident = spans(lines, "resident", ("evict", "finish"))
    there = spans(lines, "arrive", ("finish",))
    for number, (name, colour) in enumerate(zip(JOBS, COLOURS, strict=True)):
        top = TOP + MEMORY + 40 + number * (ROW + GAP)
        parts.append(f'<text x="{LEFT - 6}" y="{top + ROW / 2 + 4}" text-anchor="end">{name}</text>')
        for begin, until in there[name]:
            parts.append(rect(begin, until, top, ROW, f'fill="none" stroke="{colour}" stroke-dasharray="2 2"'))
        for pieces, opacity in ((merged(resident[name], 0.0), 0.25), (merged(running[name], 0.02), 1.0)):
            for begin, until in pieces:
                parts.append(rect(begin, until, top, ROW, f'fill="{colour}" fill-opacity="{opacity}"'))
    for second in range(0, int(end) + 1, 5):
        parts.append(
            f'<line x1="{x(second):.1f}" x2="{x(second):.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="black"/>'
        )
        parts.append(f'<text x="{x(second):.1f}" y="{bottom + 19}" text-anchor="middle">{second} s</text>')
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{bottom}" y2="{bottom}" stroke="black"/>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    Path(__file__).with_name("scheduling.svg").write_text(draw(simulate()), encoding="utf-8")
