"""The line in the notebook that says what a cell waits for, while it waits and has published nothing yet.

It is sent to iopub under the waiting cell's own request and removed by `clear_output` before anything else is published
for that cell, so that outputs and the saved notebook are as without it. Only for requests of a front end that knows
cells: nbclient and its kin name none, and keep what they are sent. Not where an Output widget captures the cell.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import unicodedata
from typing import Any, List, Optional

from ..protocol.turns import WaitExplained
from .cell import Cell, Cells

_log = logging.getLogger("jupyter_salus")

#: A shorter wait shows nothing, in seconds.
AFTER_S = 1.0
#: The line is renewed no more often than this, in seconds.
RENEW_S = 1.0
#: Characters of the line at most.
LONGEST = 200
#: Keys in a request's metadata by which a front end shows that it knows cells.
_CELL_KEYS = ("cellId", "deletedCells", "recordTiming")
_DELIMITER = b"<IDS|MSG>"
#: Messages that aren't outputs of a cell.
_NO_OUTPUTS = (b'"status"', b'"execute_input"', b'"clear_output"', b'"comm_', b'"iopub_welcome"', b'"debug_event"')


class Line:
    """The waiting line of one kernel; shown by the waiting thread, removed by whoever publishes next."""

    def __init__(self, kernel: Any, cells: Cells) -> None:
        self._kernel = kernel
        self._cells = cells
        self._lock = threading.RLock()
        self._standing: Optional[Cell] = None
        self._text = ""
        self._shown = 0.0
        self._sees = False

    def watch(self) -> None:
        """Look at what the kernel publishes from now on. Called once, before the first cell."""
        thread = getattr(self._kernel, "iopub_thread", None)
        if thread is None:
            return
        publish = thread.send_multipart

        def send_multipart(message: Any, *args: Any, **kwargs: Any) -> Any:
            if self._cells.open:
                self._notice(message)
            return publish(message, *args, **kwargs)

        thread.send_multipart = send_multipart
        self._sees = True

    def show(self, cell: Cell, waited_s: float, why: Optional[WaitExplained]) -> None:
        """Show or renew the line of a cell that has waited for so long; does nothing where it may not stand."""
        if waited_s < AFTER_S or not self._may(cell):
            return
        text = worded(why)
        now = time.monotonic()
        with self._lock:
            if self._standing is cell and (text == self._text or now - self._shown < RENEW_S):
                return
            if self._standing is not None and self._standing is not cell:
                return
            renewed = self._standing is cell
            self._standing = None  # what is sent here isn't the cell's own output
            try:
                if renewed:
                    self._send("clear_output", {"wait": True}, cell)
                self._send("stream", {"name": "stdout", "text": text + "\n"}, cell)
            finally:
                self._standing, self._text, self._shown = cell, text, now

    def remove(self, cell: Optional[Cell]) -> None:
        """Remove the line if it stands for this cell."""
        if cell is None or self._standing is not cell:
            return
        with self._lock:
            self._standing = None
            self._send("clear_output", {"wait": False}, cell)

    def _may(self, cell: Cell) -> bool:
        metadata = cell.parent.get("metadata", {}) if isinstance(cell.parent, dict) else {}
        return (
            self._sees
            and not cell.silent
            and not cell.published
            and any(key in metadata for key in _CELL_KEYS)
            and not _captured(cell.message_id)
        )

    def _send(self, kind: str, content: Any, cell: Cell) -> None:
        try:
            kernel = self._kernel
            topic = kernel._topic(kind) if hasattr(kernel, "_topic") else kind.encode()
            kernel.session.send(kernel.iopub_socket, kind, content, parent=cell.parent, ident=topic)
        except Exception:
            _log.debug("the waiting line couldn't be sent", exc_info=True)

    def _notice(self, message: List[Any]) -> None:
        """Something is published: if it is an output of an open cell, note it, and take the line away first."""
        try:
            at = message.index(_DELIMITER)
            header, parent = bytes(message[at + 2]), bytes(message[at + 3])
        except (AttributeError, IndexError, TypeError, ValueError):
            return
        if any(kind in header for kind in _NO_OUTPUTS):
            return
        for cell in list(self._cells.open.values()):
            if not cell.published and cell.message_id and cell.message_id.encode() in parent:
                standing = self._standing
                if standing is None and self._lock._is_owned():  # type: ignore[attr-defined]
                    continue  # it is the line itself
                cell.published = True
                self.remove(cell)


def _captured(message_id: str) -> bool:
    """Whether an Output widget takes what is published for this request."""
    widgets = sys.modules.get("ipywidgets.widgets.widget")
    output = sys.modules.get("ipywidgets.widgets.widget_output")
    if widgets is None or output is None:
        return False
    try:
        live = widgets._instances
        return any(isinstance(one, output.Output) and one.msg_id == message_id for one in list(live.values()))
    except Exception:
        return True  # a version that this code doesn't know: rather no line than one in the wrong place


def worded(why: Optional[WaitExplained]) -> str:
    """The line's text for an explanation, on one line, without control characters, and not too long."""
    text = "" if why is None else printable(why.text)
    if why is None or not text:
        return "Salus: waiting for a turn"
    if why.position is not None and why.position > 0 and "in line" not in text:
        text = f"{place(why.position)}, {text}"
    if why.since is not None and "since" not in text:
        text += time.strftime(" (since %H:%M:%S)", time.localtime(why.since))
    return f"Salus: {text}"[:LONGEST]


def place(position: int) -> str:
    """Next in line, 2nd, 3rd, number 4: as the sidebar words it."""
    return {1: "next in line", 2: "2nd in line", 3: "3rd in line"}.get(position, f"number {position} in line")


def printable(text: str) -> str:
    """The text with control, format and line-breaking characters shown as a replacement character."""
    return "".join("\ufffd" if unicodedata.category(one) in _UNSHOWN else one for one in text).strip()


#: Control, format, surrogate, private use, unassigned, line and paragraph separators.
_UNSHOWN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
