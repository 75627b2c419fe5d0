"""One notebook of `jupyter salus run`: its kernel, its cells one after the other, what came of it.

nbclient's own `execute` installs signal handlers for one notebook; here several run in one loop, so the kernel is started
and ended here and the cells are given to nbclient one by one.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

from ..manager import NotebookKernelManager
from .units import size

#: How long a kernel may take to answer for the first time, in seconds: many start at once, on few cores.
STARTUP_S = 300


@dataclass
class Execution:
    """A notebook on its way; `status` is `waiting`, `running`, `done` or `failed`, with `error` in words."""

    notebook: Path
    output: Path
    status: str = "waiting"
    error: str | None = None
    cells: int = 0
    executed: int = 0
    session: str | None = None
    #: The last that the backend said of the session, and of its device.
    row: dict[str, Any] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    started: float | None = None
    ended: float | None = None

    @property
    def name(self) -> str:
        """The file's name, as in the table."""
        return self.notebook.name

    @property
    def over_capacity(self) -> str | None:
        """In words, that it held more than its device has for sessions; None where it did not."""
        row, capacity = self.row, self.device.get("capacity_bytes")
        peak = (row.get("peak_persistent_bytes") or 0) + (row.get("peak_ephemeral_bytes") or 0)
        if capacity is None or peak <= capacity:
            return None
        return (
            f"{self.name} held {size(peak)} at its peak and device {self.device['id']} has {size(capacity)} for all "
            "sessions together: it could go on only while nobody else could run."
        )

    def failed(self, why: str) -> None:
        """Called once, by whatever found out."""
        self.status, self.error = "failed", f"cannot finish {self.notebook}: {why}"

    def result(self) -> dict[str, Any]:
        """What `--json` prints of it. Bytes are bytes, times seconds."""
        row = self.row
        return {
            "notebook": str(self.notebook),
            "output": str(self.output) if self.output.exists() else None,
            "status": self.status,
            "error": self.error,
            "session": self.session,
            "cells": self.cells,
            "cells_executed": self.executed,
            "seconds": None if self.started is None or self.ended is None else round(self.ended - self.started, 3),
            "waited_s": row.get("waited_s"),
            "used_s": row.get("used_s"),
            "turns": row.get("turns"),
            "iterations": row.get("iterations"),
            "evictions": row.get("evictions"),
            "peak_persistent_bytes": row.get("peak_persistent_bytes"),
            "peak_ephemeral_bytes": row.get("peak_ephemeral_bytes"),
            "memory_mode": row.get("memory_mode"),
            "over_capacity": self.over_capacity,
        }


def read(execution: Execution) -> nbformat.NotebookNode | None:
    """The notebook, or None once the execution is marked as failed because it can't be read."""
    try:
        notebook = nbformat.read(execution.notebook, as_version=4)
    except OSError as error:
        execution.failed(error.strerror or str(error))
        return None
    except Exception as error:  # nbformat raises whatever its JSON and its schema raise
        execution.failed(f"it isn't a notebook ({str(error).splitlines()[0][:200]})")
        return None
    execution.cells = sum(1 for cell in notebook.cells if _executes(cell))
    return notebook


async def execute(
    execution: Execution,
    notebook: nbformat.NotebookNode,
    socket: str | None,
    told: Callable[[Execution], None],
    before_end: Callable[[], Any],
) -> None:
    """Run the cells, write the executed notebook, end the kernel. Never raises for what the notebook does.

    `told` is called when something changed; `before_end` is awaited while the session is still there.
    """
    execution.status, execution.started = "running", time.monotonic()
    folder = str(execution.notebook.resolve().parent)
    name = notebook.metadata.get("kernelspec", {}).get("name", "python3")
    manager = NotebookKernelManager(
        kernel_name=name,
        salus_name=execution.name,
        salus_path=os.path.relpath(execution.notebook),
        **({} if socket is None else {"salus_socket": socket}),
    )
    client = NotebookClient(notebook, km=manager, timeout=None, startup_timeout=STARTUP_S)
    # What a kernel's libraries print past Python goes to a file: it would run through the progress of all notebooks.
    with tempfile.TemporaryFile() as noise:
        try:
            await manager.start_kernel(cwd=folder, stdout=noise, stderr=noise)
            execution.session = manager.kernel_id
            await client.async_start_new_kernel_client()
            await _cells(execution, client, notebook, told)
            if execution.status == "running":
                execution.status = "done"
        except asyncio.CancelledError:
            execution.failed("it was interrupted")
            raise
        except Exception as error:
            # Whatever a kernel that doesn't start or dies makes jupyter_client and nbclient raise: the others go on.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # nbclient takes our own cancellation for a kernel's death.
                execution.failed("it was interrupted")
                raise asyncio.CancelledError from None
            execution.failed(f"{str(error) or type(error).__name__}{last_words(noise)}")
        finally:
            execution.ended = time.monotonic()
            await before_end()
            await _end(client, manager, now=execution.status != "done")
            _write(execution, notebook)
            told(execution)


async def _cells(
    execution: Execution, client: NotebookClient, notebook: nbformat.NotebookNode, told: Callable[[Execution], None]
) -> None:
    client.reset_execution_trackers()
    for index, cell in enumerate(notebook.cells):
        if not _executes(cell):
            continue
        told(execution)
        try:
            await client.async_execute_cell(cell, index, execution_count=client.code_cells_executed + 1)
        except (CellExecutionError, CellTimeoutError) as error:
            what = f"{error.ename}: {error.evalue}" if isinstance(error, CellExecutionError) else "it took too long"
            first = cell.source.strip().splitlines()[0][:60]
            execution.failed(f"cell {index + 1} of {len(notebook.cells)} (`{first}`) failed: {what}")
            return
        execution.executed += 1
    client.set_widgets_metadata()


async def _end(client: NotebookClient, manager: NotebookKernelManager, now: bool) -> None:
    if client.kc is not None:
        client.kc.stop_channels()
    if manager.has_kernel:
        await manager.shutdown_kernel(now=now)
    elif manager.kernel_id:
        await manager.cleanup_resources()


#: What a kernel in good order says of itself: nothing of it tells why it died.
_REMARK = re.compile(r"\[\w+\] (DEBUG|INFO|WARNING) \|")


def last_words(noise: IO[bytes]) -> str:
    """What a kernel that died wrote last, for the sentence about its end; nothing where it only made remarks."""
    noise.seek(0)
    lines = noise.read().decode("utf-8", "replace").strip().splitlines()
    lines = [line for line in lines if not _REMARK.match(line)]
    return f" (its last words: {lines[-1][:200]})" if lines else ""


def _write(execution: Execution, notebook: nbformat.NotebookNode) -> None:
    """Whole or not at all: a reader never sees half a notebook."""
    partial = execution.output.with_name(f".{execution.output.name}.part")
    try:
        nbformat.write(notebook, partial)
        partial.replace(execution.output)
    except OSError as error:
        execution.failed(f"the executed notebook can't be written to {execution.output}: {error.strerror}")
        partial.unlink(missing_ok=True)


def _executes(cell: nbformat.NotebookNode) -> bool:
    return bool(cell.cell_type == "code" and cell.source.strip())
