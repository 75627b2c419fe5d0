"""Cells: around the kernel's `do_execute`, so that whatever way a cell ends, its end is seen.

Silent executions (inspectors, completers) are no cells. Cells overlap, in subshells, and nest; the session's turn goes
back at the end of the last open one.
"""

from __future__ import annotations

import functools
import inspect
import threading
import time
from types import FrameType
from typing import Any, Callable, Dict, Optional

from .meter import Meter
from .trace import beneath, without_ours

#: Frames between ipykernel's request for an answer and where it waits for that, at most.
_NEAR = 20


class Cell:
    """One open cell and the thread that runs it."""

    def __init__(self, number: int, cell_id: Optional[str], parent: Any, silent: bool) -> None:
        self.number = number
        self.cell_id = cell_id
        #: The request that the cell answers: what is published for it names this one.
        self.parent = parent
        self.silent = silent
        self.began = time.monotonic()
        self.thread = threading.get_ident()
        self.meter = Meter(self.thread, threading.get_native_id(), self.began)
        self.ended = False
        #: The backend was told of it.
        self.announced = False
        #: Whether the cell has published anything yet.
        self.published = False

    @property
    def message_id(self) -> str:
        """The id of the request."""
        header = self.parent.get("header", {}) if isinstance(self.parent, dict) else {}
        return str(header.get("msg_id", ""))


class Cells:
    """The open cells of the kernel."""

    def __init__(self, began: Callable[[Cell], None], ended: Callable[[Cell, bool], None]) -> None:
        self.open: Dict[int, Cell] = {}
        self._began = began
        self._ended = ended
        self._count = 0
        self._lock = threading.Lock()

    def of(self, thread: int) -> Optional[Cell]:
        """The innermost cell that this thread runs."""
        found = None
        for cell in list(self.open.values()):
            if cell.thread == thread:
                found = cell
        return found

    def begin(self, kernel: Any, cell_id: Optional[str], silent: bool) -> Cell:
        """A cell begins in this thread."""
        with self._lock:
            self._count += 1
            cell = Cell(self._count, cell_id, parent_of(kernel), silent)
            self.open[cell.number] = cell
        self._began(cell)
        return cell

    def end(self, cell: Cell) -> None:
        """A cell ended, by whatever way; a second time does nothing."""
        if not cell.ended:
            with self._lock:
                self.open.pop(cell.number, None)
                last = not self.open
            self._ended(cell, last)
            cell.ended = True

    def wrap(self, kernel: Any) -> None:
        """Put the cells' beginning and end around the kernel's `do_execute`; its signature stays."""
        inner = kernel.do_execute

        @functools.wraps(inner)
        @beneath
        async def do_execute(*args: Any, **kwargs: Any) -> Any:
            try:
                silent = bool(kwargs["silent"]) if "silent" in kwargs else bool(args[1])
            except IndexError:
                silent = False
            if silent:
                reply = inner(*args, **kwargs)
                return await reply if inspect.isawaitable(reply) else reply
            cell = self.begin(kernel, kwargs.get("cell_id"), silent)
            try:
                reply = inner(*args, **kwargs)
                return await reply if inspect.isawaitable(reply) else reply
            except BaseException as error:
                error.__traceback__ = without_ours(error.__traceback__)
                raise
            finally:
                try:
                    self.end(cell)
                except BaseException:
                    self.end(cell)  # an interrupt came in between: the backend must hear of the end all the same
                    raise

        kernel.do_execute = do_execute


def asks(frame: Optional[FrameType]) -> bool:
    """Whether the thread that is at this frame waits for a person's answer: `input()`, pdb, getpass."""
    for _ in range(_NEAR):
        if frame is None:
            return False
        if frame.f_code.co_name == "_input_request" and frame.f_globals.get("__name__") == "ipykernel.kernelbase":
            return True
        frame = frame.f_back
    return False


def parent_of(kernel: Any) -> Any:
    """The request that this thread works on, as ipykernel knows it; an empty one where it doesn't."""
    try:
        return kernel.get_parent("shell")
    except (AttributeError, LookupError, TypeError):
        return getattr(kernel, "_parent_header", {})
