"""Frameworks' own boundaries. Each adapter wakes when the user imports its framework; the guest imports none.

The finder at the front of `sys.meta_path` finds nothing itself. For a module that an adapter waits for it asks the
others and watches the end of the import through the module's spec, so that neither loader nor module is replaced and no
frame of the guest stands in a traceback of the import.
"""

from __future__ import annotations

import logging
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Sequence

from . import keras, pools, torch

if TYPE_CHECKING:
    from ..session import Session

_log = logging.getLogger("jupyter_salus")

#: What wakes when a module has been imported.
WAKES: Dict[str, Callable[[ModuleType, Session], None]] = {**keras.WAKES, **torch.WAKES, **pools.WAKES}


class _WatchedSpec(ModuleSpec):
    """A spec during its module's import. importlib says by `_initializing` that the module is ready."""

    _wake: Callable[[str], None]

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__.get("_initializing", False))

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        self.__dict__["_initializing"] = value
        if not value and self.name in sys.modules:
            wake = self.__dict__.pop("_wake", None)
            self.__class__ = ModuleSpec  # type: ignore[assignment]
            if wake is not None:
                wake(self.name)


class _WakingFinder(MetaPathFinder):
    def __init__(self, session: Session) -> None:
        self._session = session

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        if fullname not in WAKES or fullname in sys.modules:
            return None
        spec = self._found_by_others(fullname, path, target)
        if spec is not None and type(spec) is ModuleSpec:
            spec.__class__ = _WatchedSpec
            spec.__dict__["_wake"] = self.wake
        return spec

    def _found_by_others(self, fullname: str, path: Any, target: Any) -> Optional[ModuleSpec]:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec: Optional[ModuleSpec] = find(fullname, path, target)
                if spec is not None:
                    return spec
        return None

    def wake(self, name: str) -> None:
        """The module is there: let its adapter look at it. Raises nothing."""
        module = sys.modules.get(name)
        if module is None or self._session.off:
            return
        try:
            WAKES[name](module, self._session)
        except Exception:
            _log.debug("no boundaries in %s: this version isn't known", name, exc_info=True)


def wake_on_import(session: Session) -> None:
    """Wake adapters from now on, and those whose framework is there already."""
    finder = _WakingFinder(session)
    for name in WAKES:
        if name in sys.modules:
            finder.wake(name)
    sys.meta_path.insert(0, finder)
