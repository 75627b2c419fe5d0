"""The manager's backend is the corpus's as well, for kernels that have it alone."""

from __future__ import annotations

from tests.manager.conftest import backend, links_end, module_tmp, shared_tmp

__all__ = ["backend", "links_end", "module_tmp", "shared_tmp"]
