"""The public `jupyter_salus` for kernels whose environment doesn't have it.

A finder at the very end of `sys.meta_path`: an installed copy wins. It offers a module with `boundary` and `iterations`
alone; other interpreters know nothing of it.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Optional, Sequence

from ..protocol.version import VERSION
from . import boundary, iterations

_NAME = "jupyter_salus"


class _PublicFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        if fullname != _NAME or path is not None:
            return None
        return ModuleSpec(fullname, _PublicLoader(), origin="the guest in this kernel")


class _PublicLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        return None

    def exec_module(self, module: ModuleType) -> None:
        public: Any = module
        public.__doc__ = "What jupyter_salus offers to code in a kernel: where a turn may pass on."
        public.__version__ = VERSION
        public.__all__ = ["boundary", "iterations"]
        public.boundary = boundary
        public.iterations = iterations


def offer_public() -> None:
    """Put the finder at the end, once."""
    if not any(isinstance(one, _PublicFinder) for one in sys.meta_path):
        sys.meta_path.append(_PublicFinder())
