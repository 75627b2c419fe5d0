"""The guest: jupyter_salus's code inside a kernel. Standard library alone, Python 3.9 and later.

`start` is called by the boot shim. `boundary` and `iterations` are what the public package calls; in a kernel where the
guest isn't started they do nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Optional, TypeVar

from .trace import invisible

if TYPE_CHECKING:
    from .session import Session

__all__ = ["boundary", "iterations", "start"]

T = TypeVar("T")

#: This kernel's session, once started.
_session: Optional[Session] = None


def start(ip: Any) -> None:
    """Begin to govern the kernel of this IPython shell, if its manager said where the backend is. Once; never waits."""
    global _session
    if _session is not None or not {"JUPYTER_SALUS_SOCKET", "JUPYTER_SALUS_SESSION"} <= set(os.environ):
        return
    kernel = getattr(ip, "kernel", None)
    if kernel is None:
        return
    from .session import Identity, Session
    from .starting import equip

    _session = Session(Identity(os.environ), kernel)
    equip(_session, ip, kernel)


def running() -> Optional[Session]:
    """The session of this kernel, for the magic; None where no guest runs."""
    return _session


@invisible
def boundary() -> None:
    """A turn may pass on here. Raises what ends a wait: the user's interrupt."""
    if _session is not None:
        _session.boundary()


def iterations(loader: Iterable[T]) -> Iterable[T]:
    """The items of `loader`, with a boundary after each; its length, where it has one, tells how many are to come."""
    return loader if _session is None else Iterations(loader, _session)


class Iterations(Iterable[T]):
    """What `iterations` gives: iterates anew each time, and is as long as its loader."""

    def __init__(self, loader: Iterable[T], running: Session) -> None:
        self._loader = loader
        self._running = running

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[T]:
        remaining = self._running.remaining
        try:
            total: Optional[int] = len(self)
        except TypeError:
            total = None
        count = remaining.begin(total)
        try:
            for item in self._loader:
                yield item
                count.done += 1
                boundary()
        finally:
            remaining.end(count)
