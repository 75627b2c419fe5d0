"""Sphinx: MyST pages, the furo theme, and reference pages that are made from the code before each build."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

sys.path.insert(0, str(Path(__file__).parent / "images"))

import draw_architecture
import generate

from jupyter_salus.protocol.version import VERSION

draw_architecture.FIGURE.write_text(draw_architecture.draw(), "utf-8")
generate.write_all(Path(__file__).parent / "reference" / "generated")

project = "jupyter_salus"
author = "jupyter_salus contributors"
copyright = "2026, jupyter_salus contributors"
version = release = VERSION
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"jupyter_salus {VERSION}"
