"""The server extension: the REST interface, the Jupyter event of changes, gauges for Prometheus."""

from __future__ import annotations

from .extension import SalusExtension

__all__ = ["SalusExtension"]
