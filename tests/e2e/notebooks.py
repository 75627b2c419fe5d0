"""Kernels of one real backend, and cells that run on until they are told to stop, logging their iterations as they go."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from jupyter_salus.manager import NotebookKernelManager
from jupyter_salus.protocol.client import Client

#: How long anything may take on a loaded machine, in seconds.
PATIENCE_S = 90.0


async def until(condition: Callable[[], Any], what: str) -> Any:
    """The condition's value once it is true. Fails with `what` after `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s until {what}"
        await asyncio.sleep(0.05)


class Notebook:
    """A kernel of its own, as nbclient would start it, and the files by which its cells and the test talk."""

    def __init__(self, lane: Lane, name: str) -> None:
        self.name = name
        self._lane = lane
        self._folder = lane.folder / name
        self._folder.mkdir()
        self._manager = NotebookKernelManager(salus_socket=lane.socket, salus_name=f"{name}.ipynb")
        self._client: Any = None

    async def start(self) -> None:
        await self._manager.start_kernel(stderr=-3)
        self._client = self._manager.client()
        self._client.start_channels()
        await self._client.wait_for_ready(timeout=PATIENCE_S)
        folder = str(self._folder)
        await self.run(f"import os, time\nfolder = {folder!r}\nlog = open(folder + '/log', 'w', buffering=1)")
        await until(
            lambda: self.row["managed"] and self.row["persistent_bytes"] is not None, f"{self.name} is a session"
        )

    @property
    def id(self) -> str:
        """The session's."""
        return str(self._manager.kernel_id)

    @property
    def pid(self) -> int:
        provisioner: Any = self._manager.provisioner
        return int(provisioner.pid)

    @property
    def row(self) -> dict[str, Any]:
        """What the backend says of the session now."""
        return next(row for row in self._lane.state()["sessions"] if row["id"] == self.id)

    @property
    def iterations(self) -> list[tuple[float, float]]:
        """Start and end of each iteration that the cell has logged so far, by the machine's monotonic clock."""
        try:
            lines = (self._folder / "log").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(float(start), float(end)) for start, end in (line.split() for line in lines if line.count(" ") == 1)]

    async def run(self, code: str) -> None:
        """Execute a cell that ends by itself; it must not fail."""
        reply = await self._client.execute_interactive(code, timeout=PATIENCE_S, output_hook=lambda _: None)
        assert reply["content"]["status"] == "ok", reply["content"]

    def begin(self, body: str = "sum(range(100_000))") -> None:
        """Begin a cell that does `body` again and again until it is told to stop: a plain loop, logged per iteration.

        Each line of `body` should be one call without a Python loop, so that boundaries lie between iterations only.
        """
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        self._client.execute(
            "while not os.path.exists(folder + '/stop'):\n"
            "    started = time.monotonic()\n"
            f"{lines}\n"
            "    print(started, time.monotonic(), file=log)\n"
        )

    def tell(self, word: str) -> None:
        """Make the file that a cell's body looks for."""
        (self._folder / word).touch()

    def told(self, word: str) -> bool:
        """Whether the cell has made this file."""
        return (self._folder / word).exists()

    async def end(self) -> None:
        self.tell("stop")
        if self._client is not None:
            self._client.stop_channels()
        if self._manager.has_kernel:
            await self._manager.shutdown_kernel(now=True)


async def has_turns(notebook: Notebook, count: int) -> None:
    """Wait until the session has had so many turns."""
    await until(lambda: notebook.row["turns"] >= count, f"{notebook.name} has had {count} turns")


class Lane:
    """A backend and its notebooks."""

    def __init__(self, folder: Path, socket: str) -> None:
        self.folder = folder
        self.socket = socket
        self._client = Client(socket, timeout=PATIENCE_S)
        self._notebooks: list[Notebook] = []

    def state(self) -> dict[str, Any]:
        return self._client.ask("state")

    @property
    def journal(self) -> Path:
        """Where the backend writes its journal."""
        return Path(self._client.ask("journal")["path"])

    async def notebooks(self, *names: str) -> list[Notebook]:
        """One kernel for each name, all started at the same time."""
        made = [Notebook(self, name) for name in names]
        self._notebooks += made
        starting: list[Awaitable[None]] = [one.start() for one in made]
        await asyncio.gather(*starting)
        return made

    async def end(self) -> None:
        await asyncio.gather(*(one.end() for one in self._notebooks))
        self._client.close()


def resident_bytes(pid: int) -> int:
    """What /proc says that a process holds in RAM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no resident memory")


def alive(pid: int) -> bool:
    """Whether a process runs still; a zombie doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def end_process(pid: int) -> None:
    """Kill a process that a test's kernel left on purpose."""
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return


def parameters(path: Path, **values: Any) -> None:
    """Replace values in the cell of a notebook that is tagged `parameters`."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    cell = next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    cell.source = "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
    nbformat.write(notebook, path)
