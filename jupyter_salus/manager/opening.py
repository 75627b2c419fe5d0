"""From settings to a link, or to one sentence in the log why there is none."""

from __future__ import annotations

import logging
import os
import sys

from ..errors import BadAddress
from ..protocol.address import find
from .link import Link, link_to

_told: set[str] = set()


def open_link(enabled: bool, socket: str, log: logging.Logger) -> Link | None:
    """The link to the backend that the settings name, None where kernels are to run as plain ones."""
    if not enabled:
        return None
    if sys.platform == "win32":
        _tell_once(log, "Salus: on Windows there is no backend; kernels run as plain ones")
        return None
    try:
        return link_to(find(os.environ, socket or None), log)
    except BadAddress as error:
        _tell_once(log, f"Salus: {error}. Kernels run as plain ones")
        return None


def _tell_once(log: logging.Logger, sentence: str) -> None:
    if sentence not in _told:
        _told.add(sentence)
        log.warning(sentence)
