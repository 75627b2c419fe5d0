"""Whether a frame stands at a jump backwards, read from its bytecode; Python 3.9 to 3.11."""

from __future__ import annotations

import dis
import sys
from types import CodeType, FrameType
from typing import Dict, FrozenSet

_known: Dict[CodeType, FrozenSet[int]] = {}


def at_backedge(frame: FrameType) -> bool:
    """Whether the instruction that the frame has just executed, or is about to repeat, jumps backwards."""
    return frame.f_lasti in _offsets(frame.f_code)


def has_backedges(code: CodeType) -> bool:
    """Whether this code jumps backwards anywhere."""
    return bool(_offsets(code))


def _offsets(code: CodeType) -> FrozenSet[int]:
    offsets = _known.get(code)
    if offsets is None:
        if len(_known) > 512:
            _known.clear()
        offsets = _known[code] = _backedges(code)
    return offsets


def _backedges(code: CodeType) -> FrozenSet[int]:
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
