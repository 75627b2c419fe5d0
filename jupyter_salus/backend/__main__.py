"""`python -m jupyter_salus.backend`: the backend in the foreground, or detached from whoever started it."""

from __future__ import annotations

import os
import sys

DETACH = "--detach"


def run(arguments: list[str]) -> int:
    """The exit status. `--detach`: go on in a child that is nobody's, so that its end leaves no zombie with who started
    it; done first, while there is one thread and nothing is loaded."""
    if DETACH in arguments:
        arguments = [one for one in arguments if one != DETACH]
        if os.fork():
            os._exit(0)
    from .daemon.app import main

    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
