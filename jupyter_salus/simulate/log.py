"""The log of a simulation: one JSON object a line in time order, enough for a stranger to check every rule.

What its lines mean, beyond the names:
- `resident` comes when a job's P gets its room, at the start of a return already; `evict` when it is really off the device.
- `member` says in which lane a job counts and with which E; `park` that it is resident and counts in none. Where memory is
  learned, all that a job has before its first boundary is E; then `member` and `resident` come again with what stays.
- `lane_size` gives a lane's size in `e_mib`; lanes shrink before and grow ahead of the members that need it.
- `stop` with an `e_mib` above 0 is a stop in mid-iteration: that much is still held, in no lane any more. A job that waits for
  memory in mid-iteration stops with 0: its lane holds what it has. If it then goes out, a `stop` with an `e_mib` says so.
- `iteration` stands at the end of each single iteration, whoever was told of it.
"""

from __future__ import annotations

import json
from typing import TextIO

from .table import MIB


def in_mib(value: int) -> float:
    """Bytes as MiB, without rounding."""
    return value / MIB


class Log:
    """Writes lines; without a stream it writes nothing."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        #: Whether single iterations are worth working out.
        self.wanted = stream is not None

    def write(
        self,
        time_s: float,
        event: str,
        *,
        job: str | None = None,
        device: str | None = None,
        lane: str | None = None,
        persistent_bytes: int | None = None,
        ephemeral_bytes: int | None = None,
    ) -> None:
        """One line. Bytes go out as MiB."""
        if self._stream is None:
            return
        line = {
            "t": time_s,
            "event": event,
            "job": job,
            "device": device,
            "lane": lane,
            "p_mib": None if persistent_bytes is None else in_mib(persistent_bytes),
            "e_mib": None if ephemeral_bytes is None else in_mib(ephemeral_bytes),
        }
        self._stream.write(json.dumps(line) + "\n")
