"""What `--ext=_jupyter_salus_boot` loads in a kernel: it registers the guest from its folder and starts it.

The kernel's own environment needn't have jupyter_salus. The package is registered under the private name
`_jupyter_salus`, so that it shadows nothing; this folder leaves `PYTHONPATH` and `sys.path`, and the token leaves the
environment, so that children of the kernel inherit neither. It never raises: a kernel always starts.
"""

from __future__ import annotations

import logging
import os
import sys
import types
from typing import Any

#: The name under which the guest lives in a kernel.
PRIVATE_NAME = "_jupyter_salus"
_HERE = os.path.dirname(os.path.abspath(__file__))


def load_ipython_extension(ip: Any) -> None:
    """Called by IPython while the kernel starts. Raises nothing; what goes wrong is a line in the kernel's log."""
    try:
        _leave_paths()
        _register()
        from importlib import import_module

        import_module(PRIVATE_NAME + ".guest").start(ip)
    except Exception:
        os.environ.pop("JUPYTER_SALUS_TOKEN", None)
        logging.getLogger("jupyter_salus").debug("the guest doesn't run in this kernel", exc_info=True)


def _leave_paths() -> None:
    """Take this folder out of what child interpreters inherit, and out of this one's search path."""
    inherited = os.environ.get("PYTHONPATH")
    if inherited is not None:
        kept = [entry for entry in inherited.split(os.pathsep) if not _is_here(entry)]
        if any(kept):
            os.environ["PYTHONPATH"] = os.pathsep.join(kept)
        else:
            del os.environ["PYTHONPATH"]
    sys.path[:] = [entry for entry in sys.path if not _is_here(entry)]


def _is_here(entry: Any) -> bool:
    if not isinstance(entry, str) or not entry:
        return False
    try:
        return os.path.realpath(entry) == os.path.realpath(_HERE)
    except (OSError, ValueError):
        return False


def _register() -> None:
    """Make `_jupyter_salus` a package whose folder is the installed one, without running its `__init__`."""
    if PRIVATE_NAME in sys.modules:
        return
    package = types.ModuleType(PRIVATE_NAME, "The guest of jupyter_salus in this kernel.")
    package.__path__ = [os.path.dirname(os.path.dirname(_HERE))]
    sys.modules[PRIVATE_NAME] = package
