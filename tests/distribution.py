"""How `pytest -n` spreads the tests: what shares something costly stays on one worker, what takes longest comes first.

A worker is a process with a home, directories and a mark of its own (see `isolated_run`), so no two meet in one backend.
Kernels, servers, hubs and built packages that tests share belong to a session, a folder or a file: were these spread, each
worker would start its own. Most of a test's time goes into waiting for processes, so two workers share two cores well.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

#: Folders whose tests share something over all their files.
WHOLE = ("tests/hub", "tests/guest", "tests/daemon", "tests/packaging")
#: What is begun with, in this order, so that no worker is left alone with it at the end.
FIRST = (
    "tests/hub",
    "tests/ui",
    "tests/guest",
    "tests/gpu",
    "tests/e2e",
    "tests/manager",
    "tests/server",
    "tests/packaging",
)


class ByPart(LoadScopeScheduling):
    """One unit of work is a file, or a folder of `WHOLE`; in the order of collection, which `rank` has sorted."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return next((folder for folder in WHOLE if file.startswith(f"{folder}/")), file)


def rank(nodeid: str) -> int:
    """Of a test, by its folder: the smaller, the sooner."""
    return next((place for place, folder in enumerate(FIRST) if nodeid.startswith(f"{folder}/")), len(FIRST))
