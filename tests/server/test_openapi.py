"""The OpenAPI file says what the table of routes says, and the wire examples fit its schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import jupyter_salus.server
from jupyter_salus.server.endpoints import PRIORITIES
from jupyter_salus.server.requests import SalusHandler
from jupyter_salus.server.routes import BASE, ROUTES, handlers

WIRE = Path(__file__).parent.parent / "wire"
DOCUMENT: dict[str, Any] = json.loads((Path(jupyter_salus.server.__file__).parent / "openapi.json").read_text())


def validator(name: str) -> Draft202012Validator:
    """Of one of the document's schemas."""
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]})


def test_the_file_has_the_routes_of_the_table_and_no_others():
    in_file = {(path, method.upper()) for path, verbs in DOCUMENT["paths"].items() for method in verbs}
    in_table = {(route.path, verb.method) for route in ROUTES for verb in route.verbs}
    assert in_file == in_table


def test_every_verb_in_the_table_asks_for_a_login_and_for_leave():
    for pattern, handler in handlers():
        assert pattern.startswith(f"/{BASE}")
        assert issubclass(handler, SalusHandler)
        for method in ("get", "post", "put", "patch", "delete"):
            found = vars(handler).get(method)
            assert found is None or found.__wrapped__.__wrapped__.__wrapped__, (
                f"{method} of {handler} is open to everybody"
            )


def test_verbs_that_change_something_need_leave_to_write():
    for route in ROUTES:
        for verb in route.verbs:
            assert verb.access == ("read" if verb.method == "GET" else "write")


def test_every_operation_has_a_name_of_its_own_and_says_what_it_answers():
    operations = [verb for verbs in DOCUMENT["paths"].values() for verb in verbs.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for operation in operations:
        assert "200" in operation["responses"] and "503" in operation["responses"]


@pytest.mark.parametrize(("example", "schema"), [("state", "State"), ("history", "History"), ("error", "Error")])
def test_the_wire_examples_fit(example: str, schema: str):
    validator(schema).validate(json.loads((WIRE / f"{example}.json").read_text()))


def test_the_event_schema_takes_the_wire_example():
    import yaml

    from jupyter_salus.server.events import SCHEMA_PATH

    Draft202012Validator(yaml.safe_load(SCHEMA_PATH.read_text())).validate(
        json.loads((WIRE / "event.json").read_text())
    )


def test_the_priorities_are_the_same_in_file_and_code():
    schemas = DOCUMENT["components"]["schemas"]
    assert tuple(schemas["SessionChange"]["properties"]["priority"]["enum"]) == PRIORITIES
