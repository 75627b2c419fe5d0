"""A callable that is called where the stack has room for Python code, and where it has none does nothing.

A callback of `sys.monitoring` that is written in Python needs a frame. A loop that runs at the very limit of recursion
has none left, and the RecursionError would be the user's. So what is registered here is C alone up to the point where
the depth is known: CPython looks `__call__` up, a property whose getter takes the next item of an iterator, which asks
how deep the stack is and picks the function to call. Python 3.12 and later, where C code has a limit of its own.
"""

from __future__ import annotations

import operator
import sys
from functools import partial
from itertools import repeat
from typing import Any, Callable

#: Room that the guest's own calls need, in frames. Nearer to the limit a boundary is passed by.
ROOM = 40


def cautious(function: Callable[..., Any], limit: int) -> Callable[..., Any]:
    """Calls `function` with its three arguments if the stack is at least `ROOM` frames away from `limit`."""
    # None if the stack isn't so deep, and no exception; what `iter` compares with is never returned.
    module_at = partial(getattr(sys, "_getframemodulename"), max(1, limit - ROOM))  # noqa: B009 - 3.12 and later
    shallow = map(operator.is_, iter(module_at, object()), repeat(None))
    # `slice` is a callable of C that takes three arguments and does nothing.
    choices = map({True: function}.get, shallow, repeat(slice))
    made: Callable[..., Any] = type("Cautious", (), {"__call__": property(partial(next, choices))})()
    return made
