"""`%salus status` and `%salus free`; loaded by IPython at the first use."""

from __future__ import annotations

import gc
import sys
from typing import Any, List

from . import running
from .line import printable

_USAGE = """usage: %salus status   what this kernel has and waits for
       %salus free     release what the last errors' tracebacks still hold"""


def offer_magic(ip: Any) -> None:
    """Let IPython know of the magic without loading it; where IPython is too old for that, define it now."""
    register_lazy = getattr(ip.magics_manager, "register_lazy", None)
    if register_lazy is not None:
        register_lazy("salus", __name__)
    else:
        load_ipython_extension(ip)


def load_ipython_extension(ip: Any) -> None:
    """Called by IPython when `%salus` is used for the first time."""

    def salus(line: str) -> None:
        """Show what this kernel has and waits for (`status`), or release what tracebacks hold (`free`)."""
        words = line.split() or ["status"]
        if words == ["status"]:
            print("\n".join(status()))
        elif words == ["free"]:
            print(free(ip))
        else:
            print(_USAGE)

    ip.register_magic_function(salus, "line", "salus")


def status() -> List[str]:
    """The lines of `%salus status`."""
    session = running()
    if session is None:
        return ["Salus doesn't govern this kernel."]
    turn, link = session.turn, session.link
    if not link.up:
        why = f": {printable(link.refusal)}" if link.refusal else ", trying again"
        return [f"No backend at {printable(link.address)}{why}. Code runs ungoverned."]
    if turn.epoch is not None:
        has = "has its turn, asked to give it back" if turn.revoked else "has its turn"
    elif turn.wanted:
        has = "waits for a turn"
    else:
        has = "has not used the device in this cell"
    name = printable(session.identity.name or session.identity.session)
    return [
        f"{name}: {has}.",
        f"waited {session.waited_s:.1f} s, {session.tally.total_iterations + session.tally.iterations} iterations",
        f"backend: {printable(link.address)}",
    ]


def free(ip: Any) -> str:
    """Release what the last errors' tracebacks hold: their frames keep arrays and tensors alive."""
    for name in ("last_traceback", "last_value", "last_exc", "last_type"):
        if hasattr(sys, name):
            delattr(sys, name)
    for name in ("InteractiveTB", "SyntaxTB"):
        holder: Any = getattr(ip, name, None)
        if getattr(holder, "tb", None) is not None:
            holder.tb = None
    return f"Released the last errors' tracebacks; {gc.collect()} objects went."
