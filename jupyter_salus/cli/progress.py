"""What a person sees while `jupyter salus run` works: one line a notebook where there is a terminal, else one an event."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TextIO

from .execution import Execution
from .units import duration, printable


class Progress:
    """Written to the error output, so that the output has the table alone."""

    def __init__(self, executions: Sequence[Execution], quiet: bool, stream: TextIO | None = None) -> None:
        self._executions = executions
        self._quiet = quiet
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._drawn = 0
        self._begun = time.monotonic()

    def told(self, execution: Execution) -> None:
        """Something changed in one notebook."""
        if self._quiet:
            return
        if self._live:
            self.draw()
            return
        at = duration(time.monotonic() - self._begun)
        if execution.status == "running":
            what = f"cell {execution.executed + 1} of {execution.cells}"
        else:
            # Why it failed stands below the table.
            at_cell = f" in cell {execution.executed + 1} of {execution.cells}" if execution.started else ""
            what = f"failed{at_cell}" if execution.status == "failed" else execution.status
        line = printable(f"{execution.name}: {what}", keep="\n")
        print(f"[{at}] {line}", file=self._stream, flush=True)

    def draw(self) -> None:
        """Draw the lines again, in place; without a terminal nothing."""
        if self._quiet or not self._live:
            return
        lines = [self._line(one) for one in self._executions]
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._stream.write(up + "".join(f"\x1b[2K{line}\n" for line in lines))
        self._stream.flush()
        self._drawn = len(lines)

    def _line(self, execution: Execution) -> str:
        width = max(len(one.name) for one in self._executions)
        row = execution.row
        done = f"{execution.executed}/{execution.cells} cells"
        if execution.status == "running" and row:
            turns = row.get("turns", 0)
            had = "1 turn" if turns == 1 else f"{turns} turns"
            state = f"{row['state']}, {had}, waited {duration(row['waited_s'])}"
        else:
            state = execution.status
        return printable(f"{execution.name:<{width}}  {done:>12}  {state}")[:119]
