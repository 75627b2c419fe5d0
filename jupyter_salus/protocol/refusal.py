"""Errors on the wire: from an error of the tree to `failed`, and back to the same class at the other end."""

from __future__ import annotations

from typing import Dict, Iterator, Optional, Type

from ..errors import SalusError
from .messages import Failed


def refusal(error: SalusError, request: Optional[int] = None) -> Failed:
    """The message that tells a peer about this error."""
    return Failed(code=error.code, message=error.message, request=request, detail=error.detail or None)


def error_of(failed: Failed) -> SalusError:
    """The error that a `failed` tells. A code that this version doesn't know is kept on a plain `SalusError`."""
    cls = _classes().get(failed.code)
    if cls is not None:
        return cls(failed.message, failed.detail)
    error = SalusError(failed.message, failed.detail)
    error.code = failed.code
    return error


def _classes() -> Dict[str, Type[SalusError]]:
    return {cls.code: cls for cls in _tree(SalusError)}


def _tree(cls: Type[SalusError]) -> Iterator[Type[SalusError]]:
    """Bases come after what is derived from them, so that a class without a code of its own never hides its base."""
    for below in cls.__subclasses__():
        yield from _tree(below)
    yield cls
