"""The policies, one module each: in which order sessions get turns, and what may end a turn."""

from __future__ import annotations

from ....errors import BadValue
from ..config import Config
from .base import Policy
from .fair import Fair
from .fifo import Fifo
from .pack import Pack
from .priority import Priority
from .srtf import Srtf

_POLICIES: dict[str, type[Fair] | type[Fifo] | type[Pack] | type[Priority] | type[Srtf]] = {
    policy.name: policy for policy in (Fair, Fifo, Srtf, Pack, Priority)
}

#: The names, the default first.
NAMES = tuple(_POLICIES)


def make(name: str, config: Config) -> Policy:
    """The policy of this name. Raises `BadValue`."""
    if name not in _POLICIES:
        raise BadValue(f"cannot use policy {name!r}: it must be one of {', '.join(NAMES)}", {"value": name})
    return _POLICIES[name](config)


__all__ = ["NAMES", "Policy", "make"]
