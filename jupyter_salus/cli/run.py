"""`jupyter salus run`: notebooks executed at the same time, as sessions of one backend, with a table at the end.

Exit codes: 0 all done, 1 one failed (the others finish all the same), 2 bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ..backend.devices.size import parse_bytes
from ..errors import BadValue, SalusError
from ..protocol.address import find
from ..protocol.launch import ensure_backend
from ..protocol.messages import Ask
from ..protocol.peer import Peer
from .execution import Execution, execute, read
from .own_backend import own_backend
from .progress import Progress
from .units import columns, duration, one_of, printable, size
from .verbs import POLICIES

_HEAD = ("NOTEBOOK", "RESULT", "CELLS", "WAITED", "RAN", "TURNS", "ITERATIONS", "EVICTIONS", "PEAK P", "PEAK E")
#: How often the sessions' rows are read while notebooks run, in seconds.
LOOK_S = 0.5


def configure(parser: argparse.ArgumentParser, name: str) -> None:
    """Called by the command line."""
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    parser.add_argument(
        "--output-dir", type=Path, metavar="DIR", help="where the executed notebooks go (default: a new folder)"
    )
    parser.add_argument("--overwrite", action="store_true", help="write over executed notebooks that are there")
    parser.add_argument("--stagger", type=float, default=0.0, metavar="S", help="start them S seconds apart")
    parser.add_argument("--socket", metavar="PATH", help="the backend's socket (default: where your notebooks look)")
    own = parser.add_argument_group("with one of these the run has a backend of its own")
    own.add_argument("--device", choices=("auto", "cuda", "host"), help="what it governs")
    own.add_argument("--policy", type=one_of("policy", POLICIES), metavar="NAME", help=", ".join(POLICIES))
    own.add_argument("--capacity", metavar="SIZE", help="bytes that sessions may have together, like 16GiB")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Called by the command line. Raises `BadValue` before anything is started."""
    options = _own_options(arguments)
    executions, is_new = _executions(arguments)
    begun = time.monotonic()
    progress = Progress(executions, arguments.quiet)
    try:
        with nullcontext(_shared(arguments.socket)) if options is None else own_backend(options) as socket:
            try:
                asyncio.run(_run_all(executions, socket, arguments.stagger, progress))
            except (asyncio.CancelledError, KeyboardInterrupt):
                pass  # interrupted: the kernels are ended, and the table says how far each notebook came
    finally:
        if is_new:
            _remove_if_empty(arguments.output_dir)
    if arguments.json:
        done = {"notebooks": [one.result() for one in executions], "seconds": round(time.monotonic() - begun, 3)}
        print(json.dumps(done))
    else:
        print(table(executions))
        written = f"Written to {arguments.output_dir}" if arguments.output_dir.exists() else "Nothing was written"
        print(f"\n{written}, after {duration(time.monotonic() - begun)}.")
        for note in [one.over_capacity for one in executions] + [one.error for one in executions]:
            if note:
                print(printable(note, keep="\n"))
    return 1 if any(one.status != "done" for one in executions) else 0


def table(executions: Sequence[Execution]) -> str:
    """One row a notebook: what it waited, what it used, how often it had a turn."""
    rows = []
    for one in executions:
        row = one.row
        rows.append(
            (
                one.name,
                one.status,
                f"{one.executed}/{one.cells}",
                duration(row.get("waited_s")),
                duration(row.get("used_s")),
                str(row.get("turns", "–")),
                str(row.get("iterations", "–")),
                str(row.get("evictions", "–")),
                size(row.get("peak_persistent_bytes")),
                size(row.get("peak_ephemeral_bytes")),
            )
        )
    return columns(_HEAD, rows, range(2, len(_HEAD)))


def _own_options(arguments: argparse.Namespace) -> list[str] | None:
    """The options of the run's own backend, None where the person's one is used."""
    given = [(name, getattr(arguments, name)) for name in ("device", "policy", "capacity")]
    options = [f"--{name}={value}" for name, value in given if value is not None]
    if not options:
        return None
    if arguments.socket:
        raise BadValue(
            "cannot use --socket together with --device, --policy or --capacity: these start a backend of its own"
        )
    if arguments.capacity is not None:
        parse_bytes(arguments.capacity)
    return options


def _shared(configured: str | None) -> str:
    address = find(os.environ, configured)
    ensure_backend(address)
    return address.path


def _executions(arguments: argparse.Namespace) -> tuple[list[Execution], bool]:
    """One for each notebook, with its output's place. Makes the folder, and says whether it did. Raises `BadValue`."""
    if not 0 <= arguments.stagger <= 86400:
        raise BadValue(f"cannot start notebooks {arguments.stagger} s apart: between 0 and 86400 is possible")
    names = [notebook.name for notebook in arguments.notebooks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadValue(
            f"cannot write two notebooks named {', '.join(twice)} to one folder: rename one, or run them apart"
        )
    folder = arguments.output_dir or _new_folder()
    arguments.output_dir = folder
    there = [str(folder / name) for name in names if (folder / name).exists()]
    if there and not arguments.overwrite:
        raise BadValue(f"cannot write over {', '.join(there)}: choose another --output-dir, or give --overwrite")
    for notebook in arguments.notebooks:
        if (folder / notebook.name).exists() and (folder / notebook.name).samefile(notebook):
            raise BadValue(f"cannot write the executed {notebook} over itself: choose another --output-dir")
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadValue(f"cannot write to {folder}: {error.strerror}") from error
    return [Execution(notebook, folder / notebook.name) for notebook in arguments.notebooks], is_new


def _remove_if_empty(folder: Path) -> None:
    """Where no notebook could be read there is nothing to look into."""
    try:
        folder.rmdir()
    except OSError:
        return  # there are executed notebooks in it


def _new_folder() -> Path:
    """`salus-run-…`, by the time of day; never one that is there."""
    made = Path(time.strftime("salus-run-%Y%m%d-%H%M%S"))
    number = 1
    while made.exists():
        number += 1
        made = Path(time.strftime(f"salus-run-%Y%m%d-%H%M%S-{number}"))
    return made


async def _run_all(executions: list[Execution], socket: str, stagger_s: float, progress: Progress) -> None:
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None
    # Ctrl-C cancels the main task by asyncio's own doing; a plain kill ends the kernels in the same way.
    loop.add_signal_handler(signal.SIGTERM, this.cancel)
    looker = _Looker(executions, await Peer.connect(socket, role="client"))
    looking = asyncio.ensure_future(looker.keep_looking(progress))
    try:
        async with asyncio.TaskGroup() as group:
            for number, one in enumerate(executions):
                group.create_task(_run_one(one, socket, number * stagger_s, progress, looker))
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await looker.peer.close()
        progress.draw()


async def _run_one(one: Execution, socket: str, after_s: float, progress: Progress, looker: _Looker) -> None:
    notebook = read(one)
    if notebook is None:
        progress.told(one)
        return
    try:
        await asyncio.sleep(after_s)
    except asyncio.CancelledError:
        one.failed("it was interrupted")
        raise
    await execute(one, notebook, socket, progress.told, looker.look)


class _Looker:
    """Reads the sessions' rows from the backend; a run goes on without them where it is gone."""

    def __init__(self, executions: list[Execution], peer: Peer) -> None:
        self.peer = peer
        self._executions = executions

    async def look(self) -> None:
        """Give each execution the row of its session as it is now."""
        try:
            state: dict[str, Any] = await self.peer.request(Ask, what="state")
        except SalusError:
            return  # the kernels run on as plain ones, and the table shows the last that was known
        rows = {row["id"]: row for row in state["sessions"]}
        devices = {row["id"]: row for row in state["devices"]}
        for one in self._executions:
            one.row = rows.get(one.session or "", one.row)
            one.device = devices.get(one.row.get("device", ""), one.device)

    async def keep_looking(self, progress: Progress) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()
            progress.draw()
