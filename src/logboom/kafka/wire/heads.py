"""The request header, versions 1 and 2: API key, API version, correlation id and client id.

The client id has the same encoding in both versions, also where all other strings are compact. The tagged fields of
version 2 are skipped. Pure: it knows bytes.
"""

from struct import Struct
from typing import Final, NamedTuple

from logboom.kafka.wire.reading import MalformedError, skip_tags

_HEAD: Final = Struct(">hhih")
_HEAD_BYTES: Final = _HEAD.size
_API_KEY: Final = Struct(">h")


class Head(NamedTuple):
    """A request header; its tagged fields, where the version has any, begin at `end`."""

    api_key: int
    version: int
    correlation_id: int
    client: bytearray
    """Empty where the client sent none."""
    end: int


def read_head(frame: bytearray) -> Head:
    """The header of a frame. Raises MalformedError where the frame ends inside it."""
    if len(frame) < _HEAD_BYTES:
        raise MalformedError("the request is shorter than its header")
    api_key, version, correlation_id, length = _HEAD.unpack_from(frame)
    end = _HEAD_BYTES + max(0, length)
    if end > len(frame):
        raise MalformedError("the client id is beyond the end")
    return Head(api_key, version, correlation_id, frame[_HEAD_BYTES:end], end)


def claimed_api(frame: bytearray) -> tuple[int, int]:
    """API key and version of a frame that cannot be read, for a log line; zeros where it is too short."""
    return _HEAD.unpack_from(bytes(frame[:_HEAD_BYTES]).ljust(_HEAD_BYTES, b"\0"))[:2]


def api_key_of(frame: bytearray) -> int:
    """The API key of a frame, without reading more of it. The frame reader accepts no frame that is shorter."""
    key: int = _API_KEY.unpack_from(frame)[0]
    return key


def skip_head_tags(frame: bytearray, position: int, budget: int) -> tuple[int, int]:
    """Skip the tagged fields at `position`: (position of the body, budget of elements left). Raises MalformedError."""
    if position >= len(frame):
        raise MalformedError("the header ends too early")
    if frame[position]:
        return skip_tags(memoryview(frame), position, len(frame), budget)
    return position + 1, budget
