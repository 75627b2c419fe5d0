"""Messages as frozen dataclasses, and their way to and from JSON objects.

A message class names its `kind` and is registered by `@message`. Unknown fields are ignored, so that a newer peer may
say more; a missing or wrong field is a `BadMessage` that names the kind, the field and the value.
"""

from __future__ import annotations

import dataclasses
import math
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ClassVar,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    Type,
    TypeVar,
    Union,
    get_type_hints,
)

from ..errors import BadMessage, UnknownMessage

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        """For type checkers alone; the standard library has it from 3.11 on."""
        return lambda decorator: decorator


#: The versions of the protocol that this code speaks, first and last. The hello carries it; the highest shared one is used.
PROTOCOL: Tuple[int, int] = (1, 1)
#: Text fields are cut to nothing longer than this many characters; a longer one is a `BadMessage`.
MAX_TEXT = 4096

_kinds: Dict[str, Type[Message]] = {}
_fields: Dict[Type[Message], Tuple[_Field, ...]] = {}


class Message:
    """Base of all messages; `kind` is the word on the wire."""

    kind: ClassVar[str] = ""

    def _values(self) -> Tuple[Any, ...]:
        return tuple(getattr(self, field.name) for field in _fields_of(type(self)))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((self.kind, self._values()))

    def __repr__(self) -> str:
        named = zip((field.name for field in _fields_of(type(self))), self._values())
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in named)})"


M = TypeVar("M", bound=Message)


@dataclass_transform(frozen_default=True)
def message(kind: str) -> Callable[[Type[M]], Type[M]]:
    """Register a dataclass as the message of this kind."""

    def register(cls: Type[M]) -> Type[M]:
        # What the base has needn't be written out and compiled for each class: a kernel waits for that when it starts.
        made = dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
        made.kind = kind
        _kinds[kind] = made
        return made

    return register


def kinds() -> Dict[str, Type[Message]]:
    """Every kind that this version knows; the reference page is made from it."""
    return dict(_kinds)


def to_wire(said: Message) -> Dict[str, Any]:
    """The JSON object of a message; fields that are None are left out."""
    wire: Dict[str, Any] = {"kind": said.kind}
    for field in _fields_of(type(said)):
        value = getattr(said, field.name)
        if value is not None:
            wire[field.name] = list(value) if isinstance(value, tuple) else value
    return wire


def from_wire(wire: Mapping[str, Any]) -> Message:
    """The message in a JSON object. Raises `UnknownMessage` or `BadMessage`."""
    kind = wire.get("kind")
    cls = _kinds.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise UnknownMessage(f"cannot read a message of kind {str(kind)[:80]!r}: this version doesn't know it")
    values: Dict[str, Any] = {}
    for field in _fields_of(cls):
        value = wire.get(field.name)
        if value is not None:
            # What most values are needs no closer look: a hand-over waits for this.
            small = type(value) is int and field.wanted is int and -(2**63) <= value < 2**63
            values[field.name] = value if small else _checked(str(kind), field, value)
        elif field.required:
            raise BadMessage(f"cannot read a {kind}: the field {field.name!r} is missing")
    return cls(**values)


class _Field(NamedTuple):
    """What reading and writing need to know of a message's field."""

    name: str
    wanted: Any
    required: bool


def _fields_of(cls: Type[Message]) -> Tuple[_Field, ...]:
    fields = _fields.get(cls)
    if fields is None:
        hints = get_type_hints(cls)
        fields = _fields[cls] = tuple(
            _Field(
                field.name,
                _wanted(hints[field.name]),
                field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
            )
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
        )
    return fields


def _wanted(hint: Any) -> Any:
    """The class that a value of this hint must have, `Any` for whatever it is."""
    origin = getattr(hint, "__origin__", None)
    if origin is Union:
        hint = next(part for part in hint.__args__ if part is not type(None))
        origin = getattr(hint, "__origin__", None)
    return hint if origin is None else origin


def _checked(kind: str, field: _Field, value: Any) -> Any:
    name, wanted = field.name, field.wanted
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if wanted is tuple and isinstance(value, list):
        value = tuple(value)
    if wanted is not Any and (not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool)):
        named = getattr(wanted, "__name__", str(wanted))
        raise BadMessage(f"cannot read a {kind}: {name!r} is {str(value)[:80]!r}, a {named} is needed")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise BadMessage(f"cannot read a {kind}: {name!r} has {len(value)} characters, the limit is {MAX_TEXT}")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadMessage(f"cannot read a {kind}: {name!r} is not a finite number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise BadMessage(f"cannot read a {kind}: {name!r} is {str(value)[:40]}, beyond 64 bits")
    return value


def shared_protocol(theirs: Any) -> Optional[int]:
    """The highest version that both ends speak, or None. `theirs` is the range from a hello, first and last."""
    if not (isinstance(theirs, (list, tuple)) and len(theirs) == 2 and all(type(one) is int for one in theirs)):
        return None
    first, last = max(PROTOCOL[0], theirs[0]), min(PROTOCOL[1], theirs[1])
    return last if first <= last else None


def names_of(cls: Type[Message]) -> List[str]:
    """The fields of a message class, in their order; for the reference page."""
    return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
