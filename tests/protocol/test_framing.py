"""Frames survive whatever a stream does to them; what isn't a frame is told."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_salus.errors import BadFrame
from jupyter_salus.protocol.framing import HEADER, FrameReader, encode

json_objects = st.dictionaries(
    st.text(max_size=8), st.none() | st.booleans() | st.integers() | st.text(max_size=8), max_size=4
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages=st.lists(json_objects, max_size=6), cuts=st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_split_and_joined_frames_arrive_whole_and_in_order(messages: list[dict[str, Any]], cuts: list[int]) -> None:
    stream = b"".join(encode(message) for message in messages)
    reader = FrameReader()
    read = []
    turn = 0
    while stream:
        size = cuts[turn % len(cuts)]
        read += reader.feed(stream[:size])
        stream = stream[size:]
        turn += 1
    assert read == messages
    assert reader.held_bytes == 0


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(garbage=st.binary(max_size=200))
def test_garbage_is_a_bad_frame_or_waits_for_more(garbage: bytes) -> None:
    reader = FrameReader(limit=64)
    try:
        messages = reader.feed(garbage)
    except BadFrame as error:
        assert error.message.startswith("cannot")
    else:
        assert all(isinstance(message, dict) for message in messages)


def test_half_a_frame_is_held() -> None:
    reader = FrameReader()
    frame = encode({"kind": "hello"})
    assert reader.feed(frame[:-1]) == []
    assert reader.held_bytes == len(frame) - 1
    assert reader.feed(frame[-1:]) == [{"kind": "hello"}]


def test_an_oversized_frame_is_refused_before_it_is_held() -> None:
    with pytest.raises(BadFrame, match="frame of 65 bytes: the limit is 64"):
        FrameReader(limit=64).feed(HEADER.pack(65))


def test_frames_before_a_bad_one_are_lost_with_the_connection() -> None:
    with pytest.raises(BadFrame, match="as JSON"):
        FrameReader().feed(encode({"a": 1}) + HEADER.pack(3) + b"{{{")


def test_deeply_nested_json_is_a_bad_frame() -> None:
    body = b"[" * 100_000
    with pytest.raises(BadFrame, match="as JSON"):
        FrameReader().feed(HEADER.pack(len(body)) + body)


def test_a_frame_that_is_no_object_is_refused() -> None:
    with pytest.raises(BadFrame, match="holds a list"):
        FrameReader().feed(HEADER.pack(2) + b"[]")


@pytest.mark.parametrize("value", [math.inf, object()])
def test_what_is_no_json_is_not_sent(value: object) -> None:
    with pytest.raises(BadFrame, match="cannot send a message of kind 'x'"):
        encode({"kind": "x", "value": value})


def test_what_is_too_long_is_not_sent() -> None:
    with pytest.raises(BadFrame, match="the limit is 10"):
        encode({"kind": "x" * 20}, limit=10)
