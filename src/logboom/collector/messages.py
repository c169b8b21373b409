"""The three requests of a producer, in versions that every broker of the last years serves, and their answers.

Written and read by hand: there are few fields, and nothing a server says may cost more memory than its bytes. Knows
bytes alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct, error
from typing import Final, TypeVar

from logboom.base.errors import LogboomError
from logboom.base.ports import Bytes
from logboom.base.settings import join_address

PRODUCE: Final = (0, 7)
METADATA: Final = (3, 4)
INIT_PRODUCER_ID: Final = (22, 1)

_TIMEOUT_MS: Final = 30_000
_PRODUCE_HEAD: Final = Struct(">hhiih")
_PRODUCE_PARTITION: Final = Struct(">iii")
_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_PRODUCER: Final = Struct(">ihqh")
_NO_TRANSACTION: Final = Struct(">hi").pack(-1, 60_000)

Value = TypeVar("Value")


class AnswerError(LogboomError):
    """An answer that cannot be read."""


@dataclass(frozen=True, slots=True)
class StreamPlaces:
    """Where a stream's partitions are led; `error` where there is no such thing."""

    error: int
    leaders: dict[int, int]


@dataclass(frozen=True, slots=True)
class Places:
    """The brokers' addresses, and the streams asked for."""

    brokers: dict[int, str]
    streams: dict[str, StreamPlaces]


class _Cursor:
    """Reads one answer; struct.error or IndexError where its bytes are over."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def int16(self) -> int:
        return self._number(_SHORT)

    def int32(self) -> int:
        return self._number(_INT)

    def flag(self) -> bool:
        self._at += 1
        return bool(self._body[self._at - 1])

    def text(self) -> str:
        length = self.int16()
        start, self._at = self._at, self._at + max(0, length)
        if self._at > len(self._body):
            raise error
        return str(self._body[start : self._at], "utf-8", "replace")

    def many(self, one: Callable[[], Value]) -> list[Value]:
        return [one() for _ in range(max(0, min(self.int32(), len(self._body))))]

    def _number(self, kind: Struct) -> int:
        (value,) = kind.unpack_from(self._body, self._at)
        self._at += kind.size
        return int(value)


def produce_request(stream: str, partition: int, batch: Bytes) -> list[Bytes]:
    """One batch for one partition, acknowledged by all in-sync replicas."""
    name = stream.encode()
    head = _PRODUCE_HEAD.pack(-1, -1, _TIMEOUT_MS, 1, len(name)) + name
    return [head + _PRODUCE_PARTITION.pack(1, partition, len(batch)), batch]


def produce_answer(body: memoryview) -> int:
    """The error code of the one partition."""
    return _read(body, _produce_code)


def _produce_code(cursor: _Cursor) -> int:
    streams = cursor.int32()
    cursor.text()
    partitions = cursor.int32()
    cursor.int32()
    if (streams, partitions) != (1, 1):
        raise AnswerError("an answer to Produce for other partitions than the one that was asked for")
    return cursor.int16()


def metadata_request(streams: list[str]) -> list[Bytes]:
    """Where are these led? They are made where the broker makes streams by itself."""
    names = [name.encode() for name in streams]
    return [_INT.pack(len(names)) + b"".join(_SHORT.pack(len(name)) + name for name in names) + b"\x01"]


def metadata_answer(body: memoryview) -> Places:
    """Where they are led."""
    return _read(body, _places)


def _places(cursor: _Cursor) -> Places:
    def broker() -> tuple[int, str]:
        number, host, port = cursor.int32(), cursor.text(), cursor.int32()
        cursor.text()  # its rack
        return number, join_address(host, port)

    def partition() -> tuple[int, int]:
        cursor.int16()  # an error of the partition: it has no leader then
        index, leader = cursor.int32(), cursor.int32()
        cursor.many(cursor.int32)
        cursor.many(cursor.int32)
        return index, leader

    def stream() -> tuple[str, StreamPlaces]:
        code, name = cursor.int16(), cursor.text()
        cursor.flag()
        return name, StreamPlaces(code, dict(cursor.many(partition)))

    cursor.int32()  # throttle time
    brokers = dict(cursor.many(broker))
    cursor.text()  # cluster id
    cursor.int32()  # controller
    return Places(brokers, dict(cursor.many(stream)))


def producer_id_request() -> list[Bytes]:
    """A producer id, please."""
    return [_NO_TRANSACTION]


def producer_id_answer(body: memoryview) -> tuple[int, tuple[int, int]]:
    """The error code; producer id and epoch."""
    try:
        _, code, number, epoch = _PRODUCER.unpack_from(body)
    except error:
        raise AnswerError("an answer that cannot be read") from None
    return int(code), (int(number), int(epoch))


def _read(body: memoryview, what: Callable[[_Cursor], Value]) -> Value:
    try:
        return what(_Cursor(body))
    except (error, IndexError):
        raise AnswerError("an answer that cannot be read") from None
