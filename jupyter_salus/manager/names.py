"""What a kernel's notebook is called, and where it lies: from the server's sessions, or from the environment at start.

Only the server's sessions know of renames and moves, so they are asked each time something is shown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_core.utils import ensure_async


@dataclass(frozen=True)
class Notebook:
    """A name to show, and the path as Jupyter's contents API has it; None for a kernel without a notebook."""

    name: str
    path: str | None = None


def at_start(environment: Mapping[str, str], root: str | None, kernel_id: str, kernel_name: str) -> Notebook:
    """The best that is known before the server has a session for the kernel. `root`: the contents' directory."""
    full = environment.get("JPY_SESSION_NAME")
    if not full:
        return Notebook(f"{kernel_name} {kernel_id[:8]}")
    path = full
    if root and os.path.isabs(full):
        inside = os.path.relpath(full, root)
        if not inside.startswith(os.pardir):
            path = inside
    return Notebook(os.path.basename(full) or path, path.replace(os.sep, "/"))


async def of_sessions(session_manager: Any) -> dict[str, Notebook]:
    """By kernel id, from the server's sessions as they are now. A notebook wins over a console of the same kernel."""
    found: dict[str, Notebook] = {}
    for model in await ensure_async(session_manager.list_sessions()):
        kernel_id = (model.get("kernel") or {}).get("id")
        path = model.get("path") or ""
        if not kernel_id or (kernel_id in found and model.get("type") != "notebook"):
            continue
        found[kernel_id] = Notebook(os.path.basename(path) or model.get("name") or path, path or None)
    return found
