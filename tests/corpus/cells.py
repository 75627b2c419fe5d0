"""The corpus: what is asked of a kernel, one step after the other, read from the files in `cells/`.

A file begins with a line that says what it is about. Each step begins with `# %%`, a kind (`execute` where none is
named) and its options as JSON; the lines below are the cell's code. `ipykernel` among the options is the first major
version of ipykernel that knows of such a thing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "cells"
_MARK = "# %%"


@dataclass(frozen=True)
class Step:
    """One thing that a front end does. `name` tells it in messages of failed tests: file and number."""

    name: str
    kind: str
    #: The message that is sent, where the kind alone doesn't say it.
    message: str
    options: dict[str, Any]
    code: str


def read_corpus() -> list[Step]:
    """All steps in order."""
    steps: list[Step] = []
    for path in sorted(FOLDER.glob("*.ipy")):
        _, *blocks = ("\n" + path.read_text()).split("\n" + _MARK)
        for number, block in enumerate(blocks, 1):
            head, _, code = block.partition("\n")
            words, brace, rest = head.partition("{")
            kind, message, *_ = [*(words.split() or ["execute"]), ""]
            options = json.loads(brace + rest or "{}")
            steps.append(Step(f"{path.stem} {number}", kind, message, options, code.removesuffix("\n")))
    return steps
