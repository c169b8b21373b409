"""The head of a request: which API in which version, the correlation id, and what the client calls itself.

Source: the Kafka protocol's request header, versions 1 and 2. The client id comes first in both, in the same form; what
is behind it, the tags of version 2, is skipped. Pure: it knows bytes.
"""

from struct import Struct
from typing import Final, NamedTuple

from logboom.kafka.wire.reading import MalformedError, skip_tags

_HEAD: Final = Struct(">hhih")
_HEAD_BYTES: Final = _HEAD.size
_API_KEY: Final = Struct(">h")


class Head(NamedTuple):
    """A request's head; its tags, where it has any, begin at `end`."""

    api_key: int
    version: int
    correlation_id: int
    client: bytearray
    """Empty where the client has no name."""
    end: int


def read_head(frame: bytearray) -> Head:
    """MalformedError where the frame ends inside it."""
    if len(frame) < _HEAD_BYTES:
        raise MalformedError("the request is shorter than its header")
    api_key, version, correlation_id, length = _HEAD.unpack_from(frame)
    end = _HEAD_BYTES + max(0, length)
    if end > len(frame):
        raise MalformedError("the client id is beyond the end")
    return Head(api_key, version, correlation_id, frame[_HEAD_BYTES:end], end)


def claimed_api(frame: bytearray) -> tuple[int, int]:
    """API key and version that a frame begins with, whatever else is wrong with it; zeros where it is too short."""
    return _HEAD.unpack_from(bytes(frame[:_HEAD_BYTES]).ljust(_HEAD_BYTES, b"\0"))[:2]


def api_key_of(frame: bytearray) -> int:
    """Which API a frame asks for, before anything else of it is read; a frame is never shorter than that."""
    key: int = _API_KEY.unpack_from(frame)[0]
    return key


def skip_head_tags(frame: bytearray, position: int, budget: int) -> tuple[int, int]:
    """Where the body begins, behind the tags at `position`, and how many elements may still come."""
    if position >= len(frame):
        raise MalformedError("the header ends too early")
    if frame[position]:
        return skip_tags(memoryview(frame), position, len(frame), budget)
    return position + 1, budget
