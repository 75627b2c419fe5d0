"""The core imports itself, the error tree and a short list of the standard library: nothing that knows the machine."""

from __future__ import annotations

import ast
from pathlib import Path

import jupyter_salus.backend.core

CORE = Path(jupyter_salus.backend.core.__file__).parent
ALLOWED = {
    "__future__",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "heapq",
    "math",
    "typing",
}


def _imports(path: Path) -> list[tuple[int, str]]:
    """(level, module) of each import of a file; absolute ones have level 0."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.level, node.module or ""))
    return found


def test_core_imports_only_itself_errors_and_a_short_list():
    for path in CORE.rglob("*.py"):
        depth = len(path.relative_to(CORE).parts)
        for level, module in _imports(path):
            if level == 0:
                assert module in ALLOWED, f"{path} imports {module}"
            elif level > depth:
                assert (level, module) == (depth + 2, "errors"), f"{path} imports {'.' * level}{module}"


def test_core_reads_no_clock_and_no_environment():
    forbidden = {"open", "print", "input", "eval", "exec", "__import__"}
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in forbidden, f"{path} calls {node.func.id}"


def test_core_says_any_nowhere():
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Name) and node.id == "Any"), path
