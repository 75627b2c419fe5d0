"""`jupyter salus backend`: a backend in the foreground; its application reads the options."""

from __future__ import annotations

from ..backend.daemon.app import BackendApp


def main(arguments: list[str]) -> int:
    """Called by the command line with what follows `backend`."""
    BackendApp.launch_instance(arguments)
    return 0
