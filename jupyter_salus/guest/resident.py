"""The bytes of this process that lie in RAM, as the host device counts them.

Read at boundaries, where another session waits for what is said next: through a descriptor that stays open, and without
letting go of the interpreter's lock, which another thread might then keep for its switch interval.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Optional

_PATH = "/proc/self/statm"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Resident:
    """The resident set of this process, files and shared memory included."""

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(256)
        self._descriptor = _opened()
        try:
            self._pread: Any = ctypes.PyDLL(None).pread
            self._pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long)
            self._pread.restype = ctypes.c_ssize_t
        except (AttributeError, OSError, TypeError):
            self.close()  # no system of this kind

    def bytes(self) -> Optional[int]:
        """The resident set now, in bytes; None where the system doesn't tell it."""
        if self._descriptor < 0:
            return None
        length = self._pread(self._descriptor, self._buffer, len(self._buffer), 0)
        fields = self._buffer.raw[: max(0, length)].split()
        if len(fields) != 7 or not all(field.isdigit() for field in fields):
            # The user's code closed it: the number stands for nothing now, or for something of theirs.
            self._descriptor = _opened()
            return None
        return int(fields[1]) * _PAGE_BYTES

    def close(self) -> None:
        """Tell nothing any more: in a forked child the descriptor tells of its parent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError:
                pass  # the user's code had closed it


def _opened() -> int:
    try:
        return os.open(_PATH, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1  # a system that doesn't tell it
