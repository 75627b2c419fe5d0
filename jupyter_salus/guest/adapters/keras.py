"""Keras 3 and tf_keras: a boundary at the beginning of each batch, by a callback that each callback list gets at its end."""

from __future__ import annotations

import functools
import logging
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from ..trace import invisible

if TYPE_CHECKING:
    from ..session import Session

_log = logging.getLogger("jupyter_salus")


def _boundary_callback(base: Any, session: Session) -> Any:
    """A callback class of this Keras that only passes boundaries, and tells how many batches are to come."""

    class Boundary(base):
        #: For Keras 2: logs are passed on as they are, so that no tensor is read because of this callback.
        _supports_tf_logs = True
        #: For Keras 3: batch ends of other callbacks may run in a thread of their own.
        async_safe = True

        def __init__(self, of: Any) -> None:
            super().__init__()
            self._of = of
            self._epoch = 0
            self._steps: Optional[int] = None
            self._count: Optional[Any] = None
            self._done = 0

        def _pass(self, iterations: int = 1) -> None:
            waited_s = session.waited_s
            session.boundary(iterations)
            if session.waited_s != waited_s and hasattr(self._of, "_check_timing"):
                # Keras 2 would warn that the user's own callbacks are slow.
                self._of._check_timing = False

        def _begin(self, total: Optional[int]) -> None:
            self._end()
            self._count = session.remaining.begin(total)

        def _end(self) -> None:
            if self._count is not None:
                session.remaining.end(self._count)
                self._count = None

        def _batch(self, steps: int) -> None:
            # With `steps_per_execution` several batches lie between two beginnings.
            done, self._done = steps - self._done, steps
            if self._count is not None:
                self._count.done = steps
            self._pass(max(1, done))

        def on_train_begin(self, logs: Any = None) -> None:
            steps, epochs = self.params.get("steps"), self.params.get("epochs")
            self._epoch, self._steps, self._done = 0, steps, 0
            self._begin(steps * epochs if isinstance(steps, int) and isinstance(epochs, int) else None)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._epoch = epoch

        @invisible
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self._batch(self._epoch * self._steps + batch if isinstance(self._steps, int) else batch)

        def on_train_end(self, logs: Any = None) -> None:
            self._end()

        @invisible
        def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
            self._pass()

        @invisible
        def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
            self._pass()

    Boundary.__module__ = __name__
    return Boundary


def _wake(module: ModuleType, session: Session) -> None:
    """A module with `CallbackList` is there: each list made from now on passes boundaries."""
    lists: Any = module.CallbackList  # type: ignore[attr-defined,unused-ignore]
    callback = _boundary_callback(lists.__mro__[1] if lists.__mro__[1] is not object else module.Callback, session)
    inner = lists.__init__

    @functools.wraps(inner)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        inner(self, *args, **kwargs)
        try:
            passing = callback(self)
            passing.set_params(getattr(self, "params", None) or {})
            self.callbacks.append(passing)
            for flag in (
                "_should_call_train_batch_hooks",
                "_should_call_test_batch_hooks",
                "_should_call_predict_batch_hooks",
            ):
                if hasattr(self, flag):
                    setattr(self, flag, True)
        except Exception:
            _log.debug("no boundaries in this callback list", exc_info=True)

    lists.__init__ = __init__


WAKES: Dict[str, Callable[[ModuleType, Session], None]] = {
    "keras.src.callbacks.callback_list": _wake,
    "tf_keras.src.callbacks": _wake,
}
