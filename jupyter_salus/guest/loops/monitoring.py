"""Back-edges on Python 3.12 and later: `sys.monitoring`'s JUMP events, in every thread.

A free tool id is taken only while armed, and given back, so that no other tool finds its id taken for long; where
another tool has them all, or takes ours, loops have no boundaries. Places that are no back-edges of the user's are
switched off one by one, for good. A loop at the limit of recursion is left alone (`room`).
"""

from __future__ import annotations

import sys
import threading
from types import CodeType
from typing import TYPE_CHECKING, Any, Optional

from ..trace import is_users, without_ours
from .code import Owner
from .landing import may_wait
from .room import cautious

if TYPE_CHECKING:
    from ..session import Session

_NAME = "jupyter_salus"
#: The order in which ids are tried: first those that have no meaning by convention.
_IDS = (4, 3, 5, 1, 2, 0)


class MonitoredLoops:
    """Arms and disarms from the link's thread; the callback runs in the user's."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._owner = Owner()
        self._monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 - not there for the type checker's oldest version
        self._tool: Optional[int] = None
        self._limit = 0

    def period_s(self, wanted_s: float) -> float:
        """Armed once, armed until disarmed."""
        return wanted_s

    def arm(self) -> None:
        """Have back-edges call."""
        monitoring = self._monitoring
        limit = sys.getrecursionlimit()
        if self._tool is not None:
            if monitoring.get_tool(self._tool) != _NAME:
                self._tool = None  # somebody freed it
            elif limit == self._limit:
                return
            else:
                self.disarm()
        for tool in _IDS:
            if monitoring.get_tool(tool) is None:
                try:
                    monitoring.use_tool_id(tool, _NAME)
                except ValueError:
                    continue  # somebody else was faster
                try:
                    monitoring.register_callback(tool, monitoring.events.JUMP, cautious(self._on_jump, limit))
                    monitoring.set_events(tool, monitoring.events.JUMP)
                except ValueError:
                    continue  # freed under our hands
                self._tool, self._limit = tool, limit
                return

    def disarm(self) -> None:
        """No event, no callback, no tool."""
        tool, self._tool = self._tool, None
        if tool is None or self._monitoring.get_tool(tool) != _NAME:
            return
        try:
            self._monitoring.set_events(tool, 0)
            self._monitoring.register_callback(tool, self._monitoring.events.JUMP, None)
            self._monitoring.free_tool_id(tool)
        except ValueError:
            pass  # freed by somebody else meanwhile: all the same to us

    def forked(self) -> None:
        """The child inherits what was armed."""
        self.disarm()

    def _on_jump(self, code: CodeType, offset: int, destination: int) -> Any:
        # All of it in the `try`: the handler of a signal may raise at any place.
        try:
            if destination > offset or not self._owner.is_users(code):
                return self._monitoring.DISABLE
            if may_wait(sys._getframe(1), self._session):
                self._session.back_edge(raises=False)
        except RecursionError:
            return None  # too near to the limit to look whose it is
        except BaseException as error:
            if is_users(error):
                # Raised from here no `try` around the loop would see it.
                error.__traceback__ = without_ours(error.__traceback__)
                self._session.redo.raise_in(threading.get_ident(), error)
                self._session.watch.wake()
        return None
