"""PyTorch: a boundary after each optimizer step, by its own global hook; Lightning and Trainer come through it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Dict

from ..trace import invisible

if TYPE_CHECKING:
    from ..session import Session


def _wake_optimizers(module: ModuleType, session: Session) -> None:
    """`torch.optim.optimizer` is there. The hook is a global one: optimizers made before and after call it."""
    register = module.register_optimizer_step_post_hook
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    is_compiling = getattr(compiler, "is_compiling", None) or (lambda: False)

    @invisible
    def after_step(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        # A compiled step is traced with its hooks: the tracer sees a function that does nothing.
        if is_compiling():
            return
        session.boundary()

    register(after_step)


WAKES: Dict[str, Callable[[ModuleType, Session], None]] = {"torch.optim.optimizer": _wake_optimizers}
