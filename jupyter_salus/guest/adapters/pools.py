"""Frameworks that compute in threads of their own: the process's CPU time counts once they are there."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Callable, Dict

if TYPE_CHECKING:
    from ..session import Session


def _wake(_module: ModuleType, session: Session) -> None:
    session.pools = True


_NAMES = ("tensorflow", "torch", "jax", "numexpr", "sklearn", "lightgbm", "xgboost")
WAKES: Dict[str, Callable[[ModuleType, Session], None]] = dict.fromkeys(_NAMES, _wake)
