"""Whether the backend answers: asked while a thread waits for a turn, so that no wait outlasts a backend that hangs.

A `ping` goes out after a while without a word of the backend's; any frame is an answer. Without one for long the
connection is given up: waits end, the code goes on ungoverned, and the guest connects anew. Time in which this process
itself didn't run (stopped, suspended, its lock held by somebody's C code) isn't the backend's.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

from ..protocol.turns import Ping, WaitExplained
from .link import Link

#: Seconds without an answer after which a wait goes on without the backend; a variable of the environment says otherwise.
PATIENCE_S = 10.0
VARIABLE = "JUPYTER_SALUS_PATIENCE_S"
#: Without a word for so long the backend is asked, in seconds.
EVERY_S = 3.0
#: Looks lie a tenth of a second apart; further apart than this, in seconds, and this process didn't run in between.
APART_S = 2.0
#: An answer is missed, and the person told, after so many seconds.
MISSED_S = 1.0


class Pulse:
    """`look` is called in the link's thread while somebody waits; `why` by those who wait."""

    def __init__(self, link: Link, environ: Mapping[str, Any]) -> None:
        self._link = link
        self.patience_s = _seconds(environ.get(VARIABLE))
        self._every_s = min(EVERY_S, self.patience_s)
        #: When a ping went out that nothing has come after, monotonic.
        self._asked: Optional[float] = None
        self._looked = 0.0

    def look(self, now: float) -> None:
        """Ask where nothing was heard for a while; give the connection up where nothing came for long."""
        slept, self._looked = now - self._looked > APART_S, now
        if self._asked is not None and self._link.heard >= self._asked:
            self._asked = None
        if self._asked is None:
            if slept:
                return  # the first look of this wait
            if now - self._link.heard >= self._every_s and self._link.send(Ping()):
                self._asked = now
        elif slept:
            self._asked = now
        elif now - self._asked >= self.patience_s:
            self._asked = None
            self._link.give_up(f"it didn't answer for {self.patience_s:g} s")

    def why(self, now: float, ticket: int) -> Optional[WaitExplained]:
        """What a wait is for while an answer is missed, in place of what the backend said last."""
        asked = self._asked
        if asked is None or now - asked < MISSED_S:
            return None
        left = max(0.0, asked + self.patience_s - now)
        return WaitExplained(
            ticket, "backend_silent", f"the backend doesn't answer; goes on without a turn in {left:.0f} s"
        )


def _seconds(told: Optional[str]) -> float:
    """What the environment says, or the default where that is no time to wait."""
    try:
        seconds = float(told) if told is not None else PATIENCE_S
    except ValueError:
        return PATIENCE_S
    return seconds if 0 < seconds < 3600 else PATIENCE_S
