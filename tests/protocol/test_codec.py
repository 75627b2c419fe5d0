"""Messages to JSON and back: what a newer peer may add, what a wrong one is told."""

from __future__ import annotations

import builtins
import dataclasses
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_salus.errors import BadMessage, SalusError, UnknownMessage
from jupyter_salus.protocol import codec, messages
from jupyter_salus.protocol.codec import from_wire, kinds, names_of, shared_protocol, to_wire
from jupyter_salus.protocol.version import VERSION, release

EXAMPLES: dict[type[Any], Any] = {
    int: 7,
    float: 1.5,
    str: "text",
    bool: True,
    tuple: (1, 2),
    dict: {"a": 1},
}


def example(cls: type[codec.Message]) -> codec.Message:
    """A message with every field set, by the field's type."""
    values = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        hint = str(field.type).replace("Optional[", "").split("[")[0].rstrip("]")
        values[field.name] = EXAMPLES[{"Tuple": tuple, "Dict": dict}.get(hint) or getattr(builtins, hint)]
    return cls(**values)


@pytest.mark.parametrize("cls", kinds().values(), ids=list(kinds()))
def test_every_message_survives_the_wire(cls: type[codec.Message]) -> None:
    said = example(cls)
    assert from_wire(to_wire(said)) == said


@pytest.mark.parametrize("cls", kinds().values(), ids=list(kinds()))
def test_unknown_fields_are_ignored(cls: type[codec.Message]) -> None:
    said = example(cls)
    assert from_wire({**to_wire(said), "from_the_future": {"x": 1}}) == said


def test_fields_that_are_none_stay_off_the_wire() -> None:
    assert to_wire(messages.Interrupt()) == {"kind": "interrupt"}


def test_the_fields_of_a_message_are_listed_in_order() -> None:
    assert names_of(messages.Progress)[:3] == ["epoch", "iterations", "busy_s"]


@pytest.mark.parametrize("kind", ["no_such", None, 7, {"a": 1}, "x" * 500])
def test_an_unknown_kind_is_told(kind: object) -> None:
    with pytest.raises(UnknownMessage, match="cannot read a message of kind") as told:
        from_wire({"kind": kind})
    assert len(told.value.message) < 200


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        ({"kind": "cell_started"}, "'cell' is missing"),
        ({"kind": "cell_started", "cell": "7"}, "a int is needed"),
        ({"kind": "cell_started", "cell": True}, "a int is needed"),
        ({"kind": "cell_started", "cell": 2**63}, "beyond 64 bits"),
        ({"kind": "cell_started", "cell": 1, "cell_id": 5}, "a str is needed"),
        ({"kind": "cell_started", "cell": 1, "cell_id": "x" * 4097}, "4097 characters, the limit is 4096"),
        ({"kind": "progress", "epoch": 1, "iterations": 1, "busy_s": float("nan")}, "not a finite number"),
        ({"kind": "hello", "role": "guest", "protocol": 1, "version": "1"}, "a tuple is needed"),
        ({"kind": "answer", "request": 1, "body": []}, "a dict is needed"),
    ],
)
def test_a_wrong_field_is_named(wire: dict[str, Any], why: str) -> None:
    with pytest.raises(BadMessage, match=why):
        from_wire(wire)


def test_a_whole_number_serves_as_a_float() -> None:
    assert from_wire({"kind": "progress", "epoch": 1, "iterations": 1, "busy_s": 2}) == messages.Progress(1, 1, 2.0)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["kind", "role", "protocol", "version", "cell", "epoch", "request", "x"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text(max_size=4)
            | st.sampled_from(list(kinds())),
            lambda inner: st.lists(inner, max_size=3),
            max_leaves=4,
        ),
    )
)
def test_no_object_does_more_than_raise_a_peer_error(wire: dict[str, Any]) -> None:
    try:
        from_wire(wire)
    except SalusError as error:
        assert error.status == 400


@pytest.mark.parametrize(
    ("theirs", "shared"),
    [
        ((1, 1), 1),
        ([0, 9], 1),
        ((2, 3), None),
        ((0, 0), None),
        ((1,), None),
        ("11", None),
        ((True, True), None),
        ((1, "1"), None),
        (None, None),
    ],
)
def test_the_highest_shared_version_is_spoken(theirs: object, shared: int | None) -> None:
    assert shared_protocol(theirs) == shared


def test_the_newer_of_two_newer_peers_speaks_the_older_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "PROTOCOL", (1, 3))
    assert shared_protocol((2, 7)) == 3
    assert shared_protocol((0, 2)) == 2


def test_versions_compare_by_their_numbers() -> None:
    assert release("0.10.1") > release("0.9")
    assert release("1.2rc1") == (1,)
    assert release("dev") == ()
    assert release(VERSION)
