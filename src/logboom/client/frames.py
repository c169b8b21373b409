"""Requests into their frames, answers out of theirs. Pure: it knows lengths and correlation ids, not what they hold."""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from logboom.base.errors import LogboomError
from logboom.base.ports import Bytes
from logboom.base.units import MIB
from logboom.client.messages import Api

ANSWER_BYTES_MAX: Final = 64 * MIB
_SIZE: Final = Struct(">i")
_CORRELATION: Final = _SIZE
_HEAD: Final = Struct(">ihhih")


class FrameError(LogboomError):
    """Bytes that are no answers."""


def framed(api: Api, correlation: int, client_id: str, body: Iterable[Bytes]) -> list[Bytes]:
    """A request in parts, ready for `sendmsg`."""
    parts, client = list(body), client_id.encode()
    size = _HEAD.size - _SIZE.size + len(client) + sum(map(len, parts))
    return [_HEAD.pack(size, *api, correlation, len(client)) + client, *parts]


class Frames:
    """What came in over one connection, and is not a complete answer yet."""

    def __init__(self) -> None:
        self._in = bytearray()

    def take(self, data: Bytes) -> Iterator[tuple[int, memoryview]]:
        """Correlation id and body of each answer that `data` completes; FrameError if the bytes are not a frame."""
        self._in += data
        while len(self._in) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._in)
            if not _CORRELATION.size <= size <= ANSWER_BYTES_MAX:
                raise FrameError(f"an answer of {size} bytes; is it a Kafka server?")
            end = _SIZE.size + size
            if len(self._in) < end:
                return
            frame = memoryview(self._in[_SIZE.size : end])
            del self._in[:end]
            yield _CORRELATION.unpack_from(frame)[0], frame[_CORRELATION.size :]
