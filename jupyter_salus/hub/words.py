"""Figures as people read them, for the page's templates."""

from __future__ import annotations

from collections.abc import Callable


def size(amount: int) -> str:
    """Bytes in binary units."""
    figure, unit = float(amount), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(figure) < 1000:
            break
        figure, unit = figure / 1024, larger
    return f"{figure:.0f} {unit}" if unit == "B" else f"{figure:.3g} {unit}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever says it shortest."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


WORDS: dict[str, Callable[..., str]] = {"size": size, "duration": duration}
