"""A handler of signals that isn't called while a profiler measures the thread; Python 3.10 and 3.11.

A profiler sees each function of Python's that runs, a handler's too, from its very beginning: to look inside the handler
would be too late. So what is installed is C alone up to the point where it is known whether there is a profiler, as in
`room`: CPython looks `__call__` up, a property whose getter asks for the profiler and picks what to call.
"""

from __future__ import annotations

import operator
import sys
from functools import partial
from itertools import repeat
from typing import Any, Callable, Dict


class Unprofiled:
    """`made` is the handler to install; it passes both arguments on to `function`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        # `slice` is a callable of C that takes two arguments and does nothing.
        self._choices: Dict[bool, Callable[..., Any]] = {True: function, False: slice}
        # What `iter` compares with is never returned.
        unprofiled = map(operator.is_, iter(sys.getprofile, object()), repeat(None))
        self.made: Callable[..., Any] = type(
            "Unprofiled", (), {"__call__": property(partial(next, map(self._choices.__getitem__, unprofiled)))}
        )()

    def in_profiles(self, called: bool) -> None:
        """Whether it is called although a profiler runs."""
        self._choices[False] = self._function if called else slice
