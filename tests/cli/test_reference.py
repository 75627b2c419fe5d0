"""The reference pages: each public thing of the code is in them, in words."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from jupyter_salus import errors
from jupyter_salus.cli.table import COMMANDS
from jupyter_salus.protocol import codec

DOCS = Path(__file__).parent.parent.parent / "docs"


def loaded(path: Path) -> ModuleType:
    """A script of the documentation, as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    pytest.importorskip("yaml", reason="the event schema is read as YAML")
    return loaded(DOCS / "generate.py")


def test_every_command_has_its_section(generate):
    page = generate.commands()
    assert all(f"## jupyter salus {name}" in page for name in COMMANDS)


def test_every_setting_says_what_for(generate):
    rows = [line for line in generate.settings().splitlines() if line.startswith("| `")]
    assert len(rows) > 10
    assert [row for row in rows if not row.rpartition("|")[0].rpartition("|")[2].strip()] == []


def test_every_error_code_is_listed_with_its_sentence(generate):
    page = generate.error_codes()
    for cls in generate._tree(errors.SalusError):
        assert cls.__doc__, cls
        assert f"`{cls.code}`" in page


def test_every_message_has_its_section_and_a_docstring_of_its_own(generate):
    page = generate.wire()
    for kind, cls in codec.kinds().items():
        assert f"\n## {kind}\n" in page
        assert not (inspect.getdoc(cls) or f"{cls.__name__}(").startswith(f"{cls.__name__}(")


def test_every_endpoint_of_the_openapi_file_is_there(generate):
    page = generate.rest()
    spec = json.loads((DOCS.parent / "jupyter_salus" / "server" / "openapi.json").read_text("utf-8"))
    assert spec["paths"]
    assert all(f" {path}\n" in page for path in spec["paths"])


def test_event_and_gauges_are_described(generate):
    assert "`previous_revision`" in generate.events()
    assert generate.metrics().count("| `salus_") >= 5


def test_every_variable_of_the_environment_that_a_person_may_set_is_listed(generate):
    # What a server hands to its kernels is no setting.
    handed = {"SESSION", "TOKEN", "INCARNATION", "NAME", "PATH", "KERNEL_ID"}
    found = set()
    for file in (DOCS.parent / "jupyter_salus").rglob("*.py"):
        if "labextension" not in file.parts:
            found |= set(re.findall(r"\bJUPYTER_SALUS_([A-Z_]*[A-Z])\b", file.read_text("utf-8")))
    listed = {name.removeprefix("JUPYTER_SALUS_") for name in generate.ENVIRONMENT}
    assert found - handed - listed == set()


def test_every_public_name_has_its_section_and_a_docstring(generate):
    page = generate.python()
    for module in generate.PUBLIC:
        for name in importlib.import_module(module).__all__:
            if not name.startswith("__"):
                assert f"\n### {name}\n" in page
    assert "\n\n\n" not in page


def test_the_architecture_figure_has_each_part_of_the_code():
    drawing = loaded(DOCS / "images" / "draw_architecture.py")
    shown = drawing.FIGURE.read_text("utf-8")
    assert drawing.draw().startswith("<svg")
    for part in drawing.imports():
        assert f">{drawing.WORDS[part][0]}<" in shown
