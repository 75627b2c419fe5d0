"""Frames on a stream socket: four bytes of length, big endian, then that many bytes of UTF-8 JSON, one object.

JSON because the guest runs in foreign environments with the standard library alone, and because a person can read
it. The length comes first so that a reader knows, before it holds the bytes, that a frame is too long.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Dict, List, Mapping

from ..errors import BadFrame

HEADER = struct.Struct(">I")
#: What a peer may send to the backend in one frame, in bytes.
MAX_REQUEST_BYTES = 256 * 1024
#: What the backend may send in one frame, in bytes: the state of 10,000 sessions fits.
MAX_ANSWER_BYTES = 32 * 1024 * 1024
#: Made once: `json.dumps` would make one for each frame.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
#: Reads one value where it stands: what `json.loads` does between its looks for space.
_SCAN: Any = getattr(json.JSONDecoder(), "scan_once")  # noqa: B009 - which type checkers don't know


def encode(message: Mapping[str, Any], limit: int = MAX_ANSWER_BYTES) -> bytes:
    """One message as a frame. Raises `BadFrame` if it is over `limit` bytes or isn't JSON."""
    try:
        body = _ENCODER.encode(message).encode("utf-8", "backslashreplace")
    except (TypeError, ValueError) as error:
        raise BadFrame(f"cannot send a message of kind {message.get('kind')!r}: {error}") from error
    if len(body) > limit:
        raise BadFrame(f"cannot send a frame of {len(body)} bytes: the limit is {limit}")
    return HEADER.pack(len(body)) + body


class FrameReader:
    """Cuts what a stream delivers into messages. One for each connection; `feed` is called by whoever reads the socket."""

    def __init__(self, limit: int = MAX_REQUEST_BYTES) -> None:
        self._limit = limit
        self._held = bytearray()

    @property
    def held_bytes(self) -> int:
        """Bytes of a frame that isn't complete yet; not 0 at the stream's end means that the peer was cut off."""
        return len(self._held)

    def feed(self, data: bytes) -> List[Dict[str, Any]]:
        """The messages that `data` completes. Raises `BadFrame`; the connection can't be read on after that."""
        self._held += data
        messages = []
        start = 0
        try:
            while len(self._held) - start >= HEADER.size:
                (length,) = HEADER.unpack_from(self._held, start)
                if length > self._limit:
                    raise BadFrame(f"cannot read a frame of {length} bytes: the limit is {self._limit}")
                end = start + HEADER.size + length
                if len(self._held) < end:
                    break
                messages.append(_decode(bytes(self._held[start + HEADER.size : end])))
                start = end
        finally:
            del self._held[:start]
        return messages


def _decode(body: bytes) -> Dict[str, Any]:
    try:
        text = body.decode("utf-8")
        try:
            message, end = _SCAN(text, 0)
        except StopIteration:
            end = -1
        if end != len(text):
            message = json.loads(text)  # with space around it, or an error to be worded
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"cannot read a frame of {len(body)} bytes as JSON: {error}") from error
    if not isinstance(message, dict):
        raise BadFrame(f"cannot read a frame that holds a {type(message).__name__}: an object is needed")
    return message
