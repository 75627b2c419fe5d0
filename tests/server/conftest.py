"""The same backends and servers as for the manager."""

from __future__ import annotations

from tests.manager.conftest import backend, kernels_end, links_end, server, shared_tmp

__all__ = ["backend", "kernels_end", "links_end", "server", "shared_tmp"]
