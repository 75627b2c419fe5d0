"""The version of this code, as the hello and the welcome say it. Here and nowhere else: the guest has no more of the package."""

from __future__ import annotations

from typing import Tuple

VERSION = "0.1.0"


def release(version: str) -> Tuple[int, ...]:
    """The leading numbers of a version, to tell an older one from a newer one; empty where there are none."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
