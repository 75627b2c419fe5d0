"""One GPU for many Jupyter notebooks: kernels take turns at cell and iteration boundaries.

Light to import: a kernel that imports this package for `boundary()` must not load a server with it.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterable, List, TypeVar

from .protocol.version import VERSION as __version__

__all__ = ["Manager", "SalusKernelManager", "boundary", "iterations", "__version__"]

T = TypeVar("T")

#: The guest in this kernel lives under a private name, so that it shadows nothing of the user's environment.
_GUEST = "_jupyter_salus.guest"


def boundary() -> None:
    """Say that a turn may pass on here, in a script's own loop. Without a guest in this process it does nothing.

    Waits if another session has the device now, and until this one has its next turn. Raises `KeyboardInterrupt`
    where the wait is interrupted, like any other statement.
    """
    guest = sys.modules.get(_GUEST)
    if guest is not None:
        guest.boundary()


def iterations(loader: Iterable[T]) -> Iterable[T]:
    """The items of `loader`, with a boundary after each; the number still to come is told to the backend where known.

    Without a guest in this process it is `loader` itself.
    """
    guest = sys.modules.get(_GUEST)
    if guest is None:
        return loader
    wrapped: Iterable[T] = guest.iterations(loader)
    return wrapped


def __getattr__(name: str) -> Any:
    if name in ("Manager", "SalusKernelManager"):
        from . import manager

        return getattr(manager, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _jupyter_labextension_paths() -> List[Dict[str, str]]:
    """Where JupyterLab finds the prebuilt sidebar."""
    return [{"src": "labextension/dist", "dest": "jupyter-salus"}]


def _jupyter_server_extension_points() -> List[Dict[str, Any]]:
    """Where jupyter_server finds the REST interface and the event feed."""
    from .server import SalusExtension

    return [{"module": "jupyter_salus", "app": SalusExtension}]
