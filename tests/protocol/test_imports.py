"""The import rule: which part may know which, so that a kernel loads no server, and a server no backend."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent.parent / "jupyter_salus"
#: What each part may import of the package, itself included. The core's is the strictest: see its own tests.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "protocol": {"protocol", "errors"},
    "guest": {"guest", "protocol", "errors"},
    "backend.core": {"backend.core", "errors"},
    "backend.devices": {"backend.devices", "errors"},
    "backend.daemon": {"backend.daemon", "backend.core", "backend.devices", "protocol", "errors"},
    "server": {"server", "manager", "protocol", "errors"},
    "manager": {"manager", "guest", "protocol", "errors"},
    # The daemon for its journal alone: a replay reads what the daemon wrote.
    "simulate": {"simulate", "backend.core", "backend.daemon", "errors", "protocol"},
    "testing": {"testing"},
    "hub": {"hub", "protocol", "errors"},
}
#: Parts that run where the package isn't installed: the standard library alone, in the grammar of Python 3.9.
INJECTED = ("errors", "protocol", "guest")


def modules(part: str) -> list[Path]:
    path = PACKAGE.joinpath(*part.split("."))
    return [path.with_suffix(".py")] if path.with_suffix(".py").exists() else sorted(path.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """The names of modules that a file imports, absolute; those of type checkers alone are left out."""
    here = ["jupyter_salus", *path.relative_to(PACKAGE).with_suffix("").parts]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checked = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in checked:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def part_of(name: str) -> str | None:
    """The part of the package that a module belongs to; None for modules of others and for the package's own names."""
    names = name.split(".")
    if names[0] != "jupyter_salus" or len(names) < 2:
        return None
    part = ".".join(names[1:3]) if names[1] == "backend" else names[1]
    return part if part in {*ALLOWED, "cli"} else None


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_knows_only_those_that_it_may(part: str) -> None:
    found = {
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules(part)
        for name in imported(path)
        if part_of(name) not in {None, *ALLOWED[part]}
    }
    assert modules(part)
    assert found == set()


@pytest.mark.parametrize("part", INJECTED)
def test_what_is_injected_into_kernels_keeps_to_the_grammar_of_python_3_9(part: str) -> None:
    for path in modules(part):
        ast.parse(path.read_text(encoding="utf-8"), filename=str(path), feature_version=(3, 9))


@pytest.mark.parametrize("part", INJECTED)
def test_what_is_injected_into_kernels_names_the_package_only_relatively(part: str) -> None:
    """There it has another name."""
    for path in modules(part):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert not (node.module or "").startswith("jupyter_salus"), path
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("jupyter_salus") for alias in node.names), path


def test_production_imports_no_test_code() -> None:
    for part in set(ALLOWED) - {"testing"}:
        for path in modules(part):
            assert not any(name.startswith(("jupyter_salus.testing", "tests")) for name in imported(path)), path
