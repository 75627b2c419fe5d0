"""The command `jupyter salus simulate`: options in, figures out. Exit codes: 0 done, 1 a job refused or stuck, 2 bad usage."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, TextIO

from ..backend.core.config import Config
from ..errors import PeerError
from .exclusive import run_exclusive
from .log import Log
from .machine import Machine, Stalled
from .model import GIB, DeviceModel
from .profiles import read_profiles
from .replay import replay
from .report import Tally
from .settings import KNOWLEDGE, LANES, MEMORY, POLICIES, Settings
from .table import MIB, MalformedFile
from .trace import read_history, read_trace

DONE, FAILED, BAD_USAGE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code; called by `jupyter salus simulate` and `python -m jupyter_salus.simulate`."""
    parser = _parser()
    try:
        options = parser.parse_args(argv)
    except SystemExit as stop:  # argparse: 0 after --help, 2 after a mistake
        return stop.code if isinstance(stop.code, int) else BAD_USAGE
    try:
        with ExitStack() as stack:
            stream = _opened(options.log, stack)
            if options.replay is not None:
                return replay(options.replay, stream, as_json=options.json)
            return _simulate(options, Log(stream))
    except PeerError as error:
        print(f"jupyter salus simulate: {error.message}", file=sys.stderr)
        return BAD_USAGE
    except Stalled as error:
        print(f"jupyter salus simulate: {error.message}", file=sys.stderr)
        return FAILED


def _simulate(options: argparse.Namespace, log: Log) -> int:
    _need(options)
    workloads = read_profiles(options.profiles)
    jobs = read_trace(options.trace, workloads)
    settings = _settings(options)
    if options.exclusive:
        tally = run_exclusive(jobs, settings.model, log, startup=settings.startup)
    else:
        tally = Machine(jobs, settings, log).run()
    return _show(tally, as_json=options.json)


def _opened(path: Path | None, stack: ExitStack) -> TextIO | None:
    if path is None:
        return None
    try:
        return stack.enter_context(path.open("w", encoding="utf-8"))
    except OSError as error:
        raise MalformedFile(f"cannot write {path}: {error.strerror or error}") from None


def _show(tally: Tally, *, as_json: bool) -> int:
    report = tally.report()
    print(json.dumps(report.as_json()) if as_json else report.as_text())
    return FAILED if report.jobs_refused else DONE


def _settings(options: argparse.Namespace) -> Settings:
    core = replace(Config(), lanes=options.lanes)
    if options.max_wait is not None:
        core = replace(core, max_wait_s=options.max_wait, max_wait_priority_s=options.max_wait)
    return Settings(
        policy=options.policy,
        model=DeviceModel(
            capacity_bytes=round(options.capacity_mib * MIB),
            interference=options.interference,
            move_s=options.move_ms / 1000,
            move_bytes_per_s=options.move_gib_s * GIB,
            host_bytes=None if options.host_mib is None else round(options.host_mib * MIB),
            switch_s=options.switch_ms / 1000,
        ),
        knowledge=options.knowledge,
        memory=options.memory,
        history={} if options.history is None else read_history(options.history),
        devices=options.devices,
        startup=options.startup,
        core=core,
    )


def _need(options: argparse.Namespace) -> None:
    """What only a replay can do without."""
    for name, value in (
        ("TRACE.csv", options.trace),
        ("--profiles", options.profiles),
        ("--capacity-mib", options.capacity_mib),
    ):
        if value is None:
            raise PeerError(f"cannot simulate without {name} (`jupyter salus simulate --help` lists what it needs)")


def _number(
    *, least: float | None = None, above: float | None = None, below: float | None = None
) -> Callable[[str], float]:
    """A type for argparse: a finite number within these limits."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"cannot take '{text}': it isn't a number") from None
        if not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"cannot take '{text}': it isn't a finite number")
        if least is not None and value < least:
            raise argparse.ArgumentTypeError(f"cannot take {text}: it is below {least:g}")
        if above is not None and value <= above:
            raise argparse.ArgumentTypeError(f"cannot take {text}: it isn't above {above:g}")
        if below is not None and value >= below:
            raise argparse.ArgumentTypeError(f"cannot take {text}: it isn't below {below:g}")
        return value

    return number


def _count(text: str) -> int:
    """A type for argparse: a whole number from 1."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"cannot take '{text}': it isn't a whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"cannot take {text}: it is below 1")
    return value


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """In one line, as the other commands say it."""
        self.exit(BAD_USAGE, f"{self.prog}: {message} (`{self.prog} --help` lists its options)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="jupyter salus simulate",
        description="Play a trace of jobs on virtual devices, with the scheduler that the backend runs.",
    )
    parser.add_argument(
        "trace",
        metavar="TRACE.csv",
        type=Path,
        nargs="?",
        help="the jobs: job_id, model_name, iterations, submit_time, duration; optional priority, growth_mib, device_count",
    )
    parser.add_argument(
        "--profiles",
        metavar="FILE",
        type=Path,
        help="what the models need: model, batch, persistent_mib, ephemeral_mib, iteration_ms, startup_s; optional gpu_share",
    )
    parser.add_argument("--policy", choices=POLICIES, default="fair", help="default: %(default)s")
    parser.add_argument(
        "--capacity-mib",
        metavar="N",
        type=_number(above=0.0),
        help="device memory for sessions, net of reserve and foreign use",
    )
    parser.add_argument(
        "--devices", metavar="N", type=_count, default=1, help="devices of that size; default: %(default)s"
    )
    parser.add_argument(
        "--knowledge",
        choices=KNOWLEDGE,
        default="progress",
        help="of a job's length: its declared duration, its number of iterations, or nothing; default: %(default)s",
    )
    parser.add_argument(
        "--memory",
        choices=MEMORY,
        default="known",
        help="persistent and ephemeral memory known at arrival, or learned as jobs ask for it; default: %(default)s",
    )
    parser.add_argument(
        "--history", metavar="FILE", type=Path, help="durations of earlier runs: CSV model_name, duration_s"
    )
    parser.add_argument(
        "--exclusive", action="store_true", help="one job at a time, first come first served, without any sharing"
    )
    parser.add_argument(
        "--lanes",
        choices=LANES,
        default="auto",
        help="auto; one: all take turns in one lane; off: each session has a lane of its own or waits; default: %(default)s",
    )
    parser.add_argument(
        "--max-wait",
        metavar="S",
        type=_number(above=0.0),
        help="the longest a session may wait for a turn before it goes first",
    )
    parser.add_argument(
        "--interference",
        metavar="X",
        type=_number(least=0.0, below=1.0),
        default=0.0,
        help="part of its speed that a session loses beside others; default: %(default)s",
    )
    parser.add_argument(
        "--move-ms",
        metavar="MS",
        type=_number(least=0.0),
        default=12.0,
        help="fixed cost of an eviction or a return; default: %(default)s",
    )
    parser.add_argument(
        "--move-gib-s",
        metavar="X",
        type=_number(above=0.0),
        default=40.0,
        help="speed of moved bytes; default: %(default)s",
    )
    parser.add_argument(
        "--host-mib", metavar="N", type=_number(least=0.0), help="host memory for evicted bytes; default: unlimited"
    )
    parser.add_argument(
        "--switch-ms",
        metavar="MS",
        type=_number(least=0.0),
        default=1.0,
        help="cost of a hand-over; default: %(default)s",
    )
    parser.add_argument("--startup", action="store_true", help="jobs begin with host work of their start-up time")
    parser.add_argument(
        "--replay",
        metavar="JOURNAL",
        type=Path,
        help="give a backend's journal to the scheduler again instead; --log gets the decisions",
    )
    parser.add_argument("--log", metavar="FILE", type=Path, help="write what happened, a JSON object a line")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    return parser
