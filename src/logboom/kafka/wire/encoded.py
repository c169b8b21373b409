"""A response body that was encoded by hand, and putting a throttle time into any response.

Knows bytes and kio's entities; not what a response is about.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from logboom.base.ports import Bytes
from logboom.kafka.wire.messages import field_names, milliseconds

_THROTTLE_TIME: Final = Struct(">i")


@dataclass(slots=True)
class EncodedResponse:
    """A response body as pieces that are sent one after the other.

    It is never changed; freezing the class would triple the cost of making one, which the hot path does per request.
    """

    pieces: Sequence[Bytes]
    throttle_at: int = -1
    """Position of the throttle time in the first piece; -1 where this version has no such field."""
    throttle_ms: int = 0
    """The throttle time that is already written there."""


def with_throttle_time(response: Any, throttle_ms: int) -> Any:
    """A response entity that carries a throttle time; unchanged where its version has no such field."""
    cls: Any = type(response)  # as Any, because lru_cache wants hashable arguments
    if "throttle_time" not in field_names(cls):
        return response
    return dataclasses.replace(response, throttle_time=milliseconds(throttle_ms))


def encoded_with_throttle_time(response: EncodedResponse, throttle_ms: int) -> Sequence[Bytes]:
    """The pieces of an encoded response with a throttle time; a longer one that is already there stays.

    The response itself is left alone, because connections may share it.
    """
    if response.throttle_at < 0 or response.throttle_ms >= throttle_ms:
        return response.pieces
    head = bytearray(response.pieces[0])
    _THROTTLE_TIME.pack_into(head, response.throttle_at, throttle_ms)
    return (head, *response.pieces[1:])
