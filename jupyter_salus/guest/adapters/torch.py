"""PyTorch: a boundary after each optimizer step, by its own global hook, and before each batch of a DataLoader, for
inference and for steps that a GradScaler skips; Lightning and Trainer come through both."""

from __future__ import annotations

import functools
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
        session.steps += 1
        session.boundary()

    register(after_step)


def _wake_loaders(module: ModuleType, session: Session) -> None:
    """`torch.utils.data.dataloader` is there. What iterates over a loader passes a boundary before each batch."""
    iterators: Any = module._BaseDataLoaderIter
    inner = iterators.__next__
    seen = [0]

    @functools.wraps(inner)
    @invisible
    def __next__(self: Any) -> Any:
        # The batch before was counted by its optimizer step, if it made one.
        stepped, seen[0] = session.steps != seen[0], session.steps
        begun = getattr(self, "_num_yielded", 1) > 0
        session.boundary(1 if begun and not stepped else 0)
        return inner(self)

    iterators.__next__ = __next__
    if "next" in vars(iterators):
        iterators.next = __next__


WAKES: Dict[str, Callable[[ModuleType, Session], None]] = {
    "torch.optim.optimizer": _wake_optimizers,
    "torch.utils.data.dataloader": _wake_loaders,
}
