"""What a guest puts in place when its kernel starts, in order; each part that can't be is left out, and the rest stands."""

from __future__ import annotations

import logging
import os
from typing import Any, Callable

from .adapters import wake_on_import
from .magic import offer_magic
from .public import offer_public
from .session import Session

_log = logging.getLogger("jupyter_salus")


def equip(session: Session, ip: Any, kernel: Any) -> None:
    """Wrap the kernel's cells, watch what it publishes, wait for frameworks, connect. Raises nothing."""
    session.tally.tellers = (session.remaining.told,)
    _try(session.line.watch)
    _try(lambda: wake_on_import(session))
    _try(lambda: offer_magic(ip))
    _try(offer_public)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=session.forked)
    session.cells.wrap(kernel)
    session.link.start()


def _try(part: Callable[[], None]) -> None:
    try:
        part()
    except Exception:
        _log.debug("a part of the guest isn't in place", exc_info=True)
