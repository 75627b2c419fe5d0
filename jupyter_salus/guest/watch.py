"""What the link's thread looks after between messages: which cells are hungry, when loops are armed, what sleeps.

Ticks happen only while there is something to look at: a cell that has no turn yet, a revoked turn, a turn held outside
cells. A held turn that nobody wants costs about one look a second at how long its iterations are.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Optional

from .cell import asks
from .loops import Loops, loops_of_this_python
from .meter import Sleep, frame_of
from .progress import LATELY_S

if TYPE_CHECKING:
    from .session import Session

#: Between two looks at a cell that hasn't touched the device yet, in seconds; longer once the cell is older.
LOOK_S, LONGEST_LOOK_S = 0.02, 0.1
#: Between two looks at a revoked turn, in seconds.
REVOKED_S = 0.01
#: How long loops stay unarmed after an interrupt was made again, so that it arrives in the user's code, in seconds.
QUIET_S = 0.05
#: Between two looks at a session without an open cell, in seconds, and at a turn that it holds in the background.
BACKGROUND_S, QUANTUM_S = 1.0, 0.1


class Watch:
    """The ticks of one guest; all but `wake` runs in the link's thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._sleep = Sleep()
        self._process_cpu = (time.monotonic(), time.process_time())
        self._quiet_until = 0.0
        self._in_cell = True
        self._threads = threading.active_count() + 1  # the link's own comes yet
        self.loops: Loops = loops_of_this_python(session)

    def wake(self) -> None:
        """Something changed that a tick should see; from any thread."""
        self._session.link.wake()

    def on_down(self) -> None:
        """No backend: nothing is to be governed."""
        self.loops.disarm()

    def tick(self, now: float) -> Optional[float]:
        """Look around; returns the seconds to the next look, None if only a message or a wake-up makes one needed."""
        session, turn = self._session, self._session.turn
        if session.off:
            self.loops.disarm()
            return None
        if session.redo.pending:
            # Or it would be made in the middle of a check at a back-edge.
            self.loops.disarm()
            session.redo.attempt()
            self._quiet_until = now + QUIET_S
            return QUIET_S if not session.redo.pending else 0.002
        if now < self._quiet_until:
            return QUIET_S
        fresh, self._in_cell = self._in_cell, bool(session.cells.open)
        if turn.revoked:
            return self._revoked(now)
        self._sleep.forget()
        if turn.wanted:
            session.pulse.look(now)
        if turn.settled:
            return self._held(now)
        if session.guarded:
            # Touches are the guard's to see, and it stops what has no turn.
            self.loops.disarm()
            if session.gate.waits:
                return session.gate.look(now)
            return LONGEST_LOOK_S if turn.wanted else None
        if turn.wanted:
            # Other threads of the session stop at their next boundary as well.
            self.loops.arm()
            return self.loops.period_s(LONGEST_LOOK_S)
        return self._untouched(now, fresh)

    def _revoked(self, now: float) -> float:
        session = self._session
        self.loops.arm()
        if (session.memory_mode == "host" and self._sleep.lasts(now)) or self._at_prompts():
            # It computes nothing: a prompt, a debugger's stop, a sleep, a download. What it holds is counted, and it
            # asks again at its next touch. On a GPU a sleeping process may have work under way.
            session.turn.release()
            return LOOK_S
        return self.loops.period_s(REVOKED_S)

    def _at_prompts(self) -> bool:
        """Whether all that is open waits for a person's answer."""
        cells = list(self._session.cells.open.values())
        return bool(cells) and all(asks(frame_of(cell.thread)) for cell in cells)

    def _held(self, now: float) -> Optional[float]:
        session = self._session
        if session.cells.open:
            return self._listen(now)
        self.loops.disarm()
        if session.guarded:
            return None
        if self._process_share(now) < 0.5:
            session.turn.release()
        return QUANTUM_S

    def _listen(self, now: float) -> float:
        """Learn now and then how long an iteration of the user's loop takes, where nobody tells it."""
        rhythm, tally = self._session.rhythm, self._session.tally
        if tally.iterations or now - tally.counted < LATELY_S:
            rhythm.rest(now)
        if rhythm.looks(now):
            self.loops.arm()
            return self.loops.period_s(LOOK_S)
        self.loops.disarm()
        return rhythm.next_s(now)

    def _untouched(self, now: float, fresh: bool) -> float:
        session = self._session
        cells = list(session.cells.open.values())
        age = now - min((cell.began for cell in cells), default=0.0)
        if cells and age < LOOK_S:
            return LOOK_S - age  # too young to have touched anything, and busy beginning
        session.announce()
        share = self._process_share(now)
        if not cells:
            # The first look after a cell would see what that cell used.
            if share > 0.5 and not fresh:
                self.loops.arm()
                return self.loops.period_s(BACKGROUND_S)
            self.loops.disarm()
            return BACKGROUND_S
        hungry = [cell for cell in cells if cell.meter.hungry(now, frame_of(cell.thread), session.pools)]
        if hungry or (self._has_more_threads() and share > 0.5):
            self.loops.arm()
            return self.loops.period_s(LOOK_S)
        self.loops.disarm()
        age = now - max(cell.began for cell in cells)
        return min(LOOK_S * (1 + age), LONGEST_LOOK_S)

    def _has_more_threads(self) -> bool:
        """Whether the user's code has started threads: the kernel's own were there before the first cell."""
        return threading.active_count() > self._threads

    def _process_share(self, now: float) -> float:
        """The share of the time since the last call that the process computed; above 1 with several threads."""
        cpu = time.process_time()
        (then, cpu_then), self._process_cpu = self._process_cpu, (now, cpu)
        return (cpu - cpu_then) / max(now - then, 1e-3)
