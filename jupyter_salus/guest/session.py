"""The guest's session: what the parts of a guest are to one another, and the boundary itself.

Rules. The guest never raises into user code, except for an interrupt of the user's; never changes a result; where it is
unsure or broken, it is gone: the kernel runs as a plain one. A boundary costs an attribute and a clock while the turn is
held and wanted by nobody else.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from typing import Any, Dict, Optional, Set, Tuple

from ..errors import SalusError
from ..protocol.codec import PROTOCOL, Message
from ..protocol.turns import (
    CellFinished,
    CellStarted,
    Hello,
    Interrupt,
    TurnGranted,
    TurnRevoked,
    WaitExplained,
    Welcome,
)
from ..protocol.version import VERSION
from .cell import Cell, Cells
from .gate import AtGate, has_guard
from .interrupts import INVISIBLE, Interrupts, Redo, users_frame
from .line import Line
from .link import Link
from .meter import Meter
from .progress import Tally
from .pulse import Pulse
from .remaining import Remaining
from .resident import Resident
from .rhythm import Rhythm
from .trace import is_users
from .turn import Turn
from .wait import Outcome, Wait
from .watch import Watch

_log = logging.getLogger("jupyter_salus")

#: How long the main thread waits for the signal of an interrupt that the server announced, in seconds.
SIGNAL_S = 0.5


class Identity:
    """Who this kernel is to the backend, from the environment that its manager gave it."""

    def __init__(self, environ: Any) -> None:
        self.address: str = environ["JUPYTER_SALUS_SOCKET"]
        self.session: str = environ["JUPYTER_SALUS_SESSION"]
        self.token: Optional[str] = environ.pop("JUPYTER_SALUS_TOKEN", None)
        self.incarnation: int = int(environ.get("JUPYTER_SALUS_INCARNATION", "0"))
        self.kernel_id: Optional[str] = environ.get("JUPYTER_SALUS_KERNEL_ID")
        self.name: Optional[str] = environ.get("JUPYTER_SALUS_NAME")
        self.path: Optional[str] = environ.get("JUPYTER_SALUS_PATH")


class Session:
    """One kernel's session. Made once by `start`; `boundary` is called by every adapter, loop and user."""

    def __init__(self, identity: Identity, kernel: Any) -> None:
        self.identity = identity
        #: How the device's memory is governed: `host` (RAM), `blocks` and `regions` (by the guard), `plain` (not at all).
        self.memory_mode = "host"
        self.off = False
        #: Whether a framework that computes in threads of its own is there.
        self.pools = False
        #: Optimizer steps seen, so that an iteration with a step and a batch is counted once.
        self.steps = 0
        self.waited_s = 0.0
        self._resident = Resident()
        self.rhythm = Rhythm()
        self.tally = Tally(self._resident_bytes, self.rhythm)
        self.remaining = Remaining()
        self.redo = Redo()
        self.cells = Cells(self._cell_began, self._cell_ended)
        self.line = Line(kernel, self.cells)
        self.link = Link(
            identity.address, self._hello, self._on_welcome, self._on_message, self._on_down, self._on_tick
        )
        self.turn = Turn(self.link.send, self.tally)
        self.gate = AtGate(self.cells, self.line)
        self.pulse = Pulse(self.link, os.environ)
        self.watch = Watch(self)
        self._key: Optional[str] = None
        self._was_holding = False
        self._was_waiting = False
        self._meters: Dict[int, Meter] = {}
        #: Threads that an interrupt let go on without a turn where nothing may be raised, until the next cell begins.
        self._let_go: Set[int] = set()

    @property
    def guarded(self) -> bool:
        """Whether the guard sees each touch of the device, and asks for the turn: a boundary is none by itself then."""
        return self.memory_mode in ("blocks", "regions")

    # ---- boundaries --------------------------------------------------------------------------------------------------

    def boundary(self, iterations: int = 1, raises: bool = INVISIBLE) -> None:
        """A place where a turn may pass on; waits where another session has the device. Raises the user's interrupts only.

        `raises` False: an exception from here wouldn't look, or wouldn't be caught, as one of the user's code; the link's
        thread makes the interrupt again a moment later, in the user's own frame.
        """
        tally = self.tally
        if self.turn.settled:
            tally.iterations += iterations
            if time.monotonic() >= tally.due:
                self._tell()
            return
        if self.off or not self.link.up or self.redo.pending or self.turn.busy_here():
            return
        tally.iterations += iterations
        try:
            if self.turn.epoch is None and not self._touches():
                return
            self._wait(raises)
        except BaseException as error:
            if is_users(error):
                raise
            self._fault(error)

    def back_edge(self, raises: bool) -> bool:
        """A boundary of a plain loop; whether the next one is to be looked at, too."""
        if self.turn.settled:
            if self.rhythm.beat():
                return True
            self._tell()
        else:
            self.tally.edges += 1
            self.boundary(0, raises)
        return False

    def _tell(self) -> None:
        turn = self.turn
        try:
            with turn.lock:
                if turn.epoch is not None:
                    self.link.send(self.tally.report(turn.epoch))
        except Exception as error:
            self._fault(error)

    def _touches(self) -> bool:
        """Whether this boundary, without a turn, is a touch of the device."""
        thread = threading.get_ident()
        if self.guarded or thread in self._let_go:
            return False
        return self.meter(thread).hungry(time.monotonic(), users_frame(), self.pools)

    def meter(self, thread: int) -> Meter:
        """The meter of this thread: its cell's, or one that begins now."""
        cell = self.cells.of(thread)
        if cell is not None:
            return cell.meter
        meter = self._meters.get(thread)
        if meter is None:
            native = threading.get_native_id() if thread == threading.get_ident() else None
            if len(self._meters) > 256:
                self._meters.clear()
            meter = self._meters[thread] = Meter(thread, native, time.monotonic())
        return meter

    def _wait(self, raises: bool) -> None:
        """Ask for a turn and stand until it comes, or the wait ends otherwise."""
        cell = self.cells.of(threading.get_ident())
        wait = Wait()
        interrupts = Interrupts(wait, raises)
        try:
            # From here to `finish` an interrupt is noted and breaks nothing off half done.
            interrupts.begin()
            if self.turn.epoch is None:
                self.announce()
            if self.turn.want(wait, background=not self.cells.open):
                self.watch.wake()
                wait.stand(lambda waited_s: self._look(wait, waited_s, cell))
                self.waited_s += time.monotonic() - wait.began
        finally:
            self.turn.leave(wait)
            self.line.remove(cell)
            interrupts.finish()
        if interrupts.came or wait.outcome is Outcome.INTERRUPTED:
            self._interrupted(interrupts, wait, cell, raises)

    def _look(self, wait: Wait, waited_s: float, cell: Optional[Cell]) -> None:
        if wait.asked_to_end is not None and time.monotonic() - wait.asked_to_end > SIGNAL_S:
            wait.end(Outcome.INTERRUPTED)
        elif cell is not None and wait.outcome is None:
            why = self.pulse.why(time.monotonic(), wait.ticket or 0)
            self.line.show(cell, waited_s, why or self.turn.explanation)

    def _interrupted(self, interrupts: Interrupts, wait: Wait, cell: Optional[Cell], raises: bool) -> None:
        """The wait was interrupted: raise where a plain kernel would, else let the thread go on without a turn."""
        if cell is None:
            self._let_go.add(wait.thread)
        elif interrupts.came or wait.is_main:
            interrupts.deliver(users_frame(), self.redo)
            self.watch.wake()
            if raises and interrupts.came and int(signal.SIGINT) not in interrupts.came:
                # A timer's handler, say, that raised nothing: the wait goes on.
                self._wait(raises)
        elif raises:
            raise KeyboardInterrupt
        else:
            self.redo.raise_in(wait.thread, KeyboardInterrupt())
            self.watch.wake()

    def _fault(self, error: BaseException) -> None:
        """The guest's own fault. A stack or memory at its limit passes; after anything else the guest is gone."""
        if isinstance(error, (RecursionError, MemoryError)):
            return
        _log.debug("the guest gives up in this kernel", exc_info=error)
        self.stop()

    def stop(self) -> None:
        """From here on the kernel is a plain one."""
        self.off = True
        self.link.stop()
        self.turn.on_down()
        self.watch.loops.disarm()

    # ---- cells -------------------------------------------------------------------------------------------------------

    def _cell_began(self, cell: Cell) -> None:
        self._let_go.clear()
        self.rhythm.begin_cell()
        self.tally.counted = 0.0
        try:
            if self.guarded:
                # The guard may speak of a touch at once.
                self.announce()
            self.watch.wake()
        except Exception as error:
            self._fault(error)

    def announce(self) -> None:
        """Tell the backend of the open cells, if it doesn't know. Not when they begin: that would make each cell, however
        short, begin later; with the first look at them, or what is said of them."""
        for cell in list(self.cells.open.values()):
            if not cell.announced:
                with self.turn.lock:
                    if not cell.announced:
                        cell.announced = True
                        self.link.send(CellStarted(cell=cell.number, cell_id=cell.cell_id))

    def _cell_ended(self, cell: Cell, last: bool) -> None:
        try:
            if last:
                self.gate.opened()
            said: Tuple[Message, ...] = (CellFinished(cell=cell.number),)
            if not cell.announced:
                said = (CellStarted(cell=cell.number, cell_id=cell.cell_id), *said)
            if last:
                self.turn.release(*said)
                self.watch.wake()
            else:
                self.link.send(*said)
        except Exception as error:
            self._fault(error)

    # ---- the link's thread -------------------------------------------------------------------------------------------

    def _hello(self) -> Hello:
        own = self.identity
        in_cell = bool(self.cells.open)
        self.turn.resumes = self._was_holding and in_cell
        return Hello(
            role="guest",
            protocol=PROTOCOL,
            version=VERSION,
            pid=os.getpid(),
            session=own.session,
            token=None if self._key else own.token,
            key=self._key,
            incarnation=own.incarnation,
            kernel_id=own.kernel_id,
            name=own.name,
            path=own.path,
            holding=self.turn.resumes or None,
            waiting=(self._was_waiting and in_cell) or None,
            touched=self.turn.ever,
            guarded=has_guard() or None,
            persistent_bytes=self._resident.bytes(),
        )

    def _resident_bytes(self) -> Optional[int]:
        """What is said of memory at boundaries: a GPU's is seen by the guard, or from outside."""
        return self._resident.bytes() if self.memory_mode == "host" else None

    def _on_welcome(self, welcome: Welcome) -> None:
        self._key = welcome.key or self._key
        self.memory_mode = welcome.memory_mode or self.memory_mode
        self.turn.unasked = self.guarded
        self._was_holding = self._was_waiting = False
        for cell in list(self.cells.open.values()):
            cell.announced = False
        self.announce()

    def _on_message(self, message: Message) -> None:
        if isinstance(message, TurnGranted):
            self.turn.on_granted(message)
            self.gate.opened()
        elif isinstance(message, TurnRevoked):
            self.turn.on_revoked(message)
        elif isinstance(message, WaitExplained):
            self.turn.on_explained(message)
            self.gate.explained(message, time.monotonic())
        elif isinstance(message, Interrupt):
            self.turn.interrupt(time.monotonic())

    def _on_down(self) -> None:
        self._was_holding = self._was_holding or self.turn.epoch is not None
        # Whom a silent backend kept waiting goes on, and waits for none that comes back.
        self._was_waiting = (self._was_waiting or self.turn.wanted) and not self.link.silent
        self.turn.on_down()
        self.gate.opened()
        self.watch.on_down()

    def _on_tick(self, now: float) -> Optional[float]:
        try:
            return self.watch.tick(now)
        except SalusError as error:
            self._fault(error)
            return None

    def forked(self) -> None:
        """In a forked child: it is no part of the session, keeps no copy of the connection, and runs ungoverned."""
        self.off = True
        self.link.abandon()
        self._resident.close()
        self.turn.settled = False
        self.turn.epoch = None
        self.watch.loops.forked()
