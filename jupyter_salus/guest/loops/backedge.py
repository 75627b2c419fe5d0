"""Where code jumps backwards, read from its bytecode; Python 3.9 to 3.11."""

from __future__ import annotations

import dis
import sys
from types import CodeType
from typing import FrozenSet


def backedges(code: CodeType) -> FrozenSet[int]:
    """What `f_lasti` is in a frame that has just jumped backwards, or is about to repeat such a jump."""
    found = set()
    before = -1
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("CACHE", "EXTENDED_ARG"):
            continue
        jumps = instruction.opcode in dis.hasjabs or instruction.opcode in dis.hasjrel
        if jumps and isinstance(instruction.argval, int) and instruction.argval <= instruction.offset:
            if instruction.opname == "JUMP_BACKWARD_NO_INTERRUPT":
                continue  # an `await` that waits: not a loop of the user's
            found.add(instruction.offset)
            if sys.version_info >= (3, 11) and instruction.opname.startswith("POP_JUMP_BACKWARD"):
                found.add(before)  # a comparison that 3.11 has fused with its jump
        before = instruction.offset
    return frozenset(found)
