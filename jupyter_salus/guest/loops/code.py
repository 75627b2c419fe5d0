"""Whose code it is: loops of cells, of functions defined in cells and of the user's own files are theirs."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import CodeType
from typing import Dict, Tuple

from ..trace import is_ours


def _foreign_folders() -> Tuple[str, ...]:
    """Folders whose files aren't the user's own: the standard library and what is installed."""
    found = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found.add(os.path.dirname(os.__file__))
    found |= {entry for entry in sys.path if entry.endswith((".zip", "-packages"))}
    return tuple(sorted(os.path.join(one, "") for one in found if one))


#: Loops of other people's code that are boundaries nevertheless: between the repetitions of `%timeit`, where nothing is
#: being timed.
_BETWEEN_TIMINGS = {("timeit.py", "repeat"), ("timeit.py", "autorange"), ("execution.py", "timeit")}
#: Names of code that isn't in a file and isn't a cell's either.
_NO_FILES = (
    "<frozen",
    "<string>",
    "<timeit-src>",
    "<__array_function__",
    "<decorator-gen",
    "<eval_with",
)


class Owner:
    """Tells the user's code from other people's; remembers by file name."""

    def __init__(self) -> None:
        self._known: Dict[str, bool] = {}
        self._foreign = _foreign_folders()

    def is_users(self, code: CodeType) -> bool:
        """Whether the loops of this code are the user's own."""
        name = code.co_filename
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._is_users_file(name, code)
        if not known and (os.path.basename(name), code.co_name) in _BETWEEN_TIMINGS:
            return True
        return known

    def _is_users_file(self, name: str, code: CodeType) -> bool:
        if is_ours(code) or name.startswith(_NO_FILES):
            return False
        if "ipykernel_" in name or name.startswith(("<ipython-input", "<magic-timeit>")):
            return True
        if name.startswith("<"):
            return False
        path = os.path.abspath(name)
        if f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path:
            return False
        return not path.startswith(self._foreign)
