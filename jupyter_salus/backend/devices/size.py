"""Sizes as people write them: `16GiB`, `512 MiB`, `2e9`."""

from __future__ import annotations

import math
import re

from ...errors import BadValue

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgtp", start=1):
    _UNITS[f"{_letter}ib"] = _UNITS[_letter] = 1024**_power
    _UNITS[f"{_letter}b"] = 1000**_power
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
MAX_BYTES = 2**60


def parse_bytes(text: str) -> int:
    """The number of bytes in `text`; `GiB` and `G` are 1024³, `GB` is 1000³. Raises `BadValue` unless it is above 0."""
    match = _SIZE.fullmatch(text)
    unit = _UNITS.get(match[2].lower()) if match else None
    number = float(match[1]) if match else math.nan
    if unit is None or not 1 <= number * unit <= MAX_BYTES:
        raise BadValue(f"cannot use {text!r} as a size: a number of bytes above 0 is needed, like 16GiB or 512MiB")
    return int(number * unit)


def bytes_text(size: int) -> str:
    """A size for people, in binary units, with three digits: `1.25 GiB`."""
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1000:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.3g} {unit}"
