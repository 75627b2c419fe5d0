"""The bytes of this process that lie in RAM, as the host device counts them."""

from __future__ import annotations

import os
from typing import Optional

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident_bytes() -> Optional[int]:
    """The resident set now, in bytes, files and shared memory included; None where the system doesn't tell it."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read(256).split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None
