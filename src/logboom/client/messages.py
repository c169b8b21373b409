"""The three requests of a producer as bytes, and their answers as values.

Written and read by hand: there are few fields, and an answer that is none costs no more memory than its bytes and
raises AnswerError alone. Knows the layout of one version of each: Produce 7 is the first that may carry zstd, the other
two are of the same age, so Kafka 2.1 and every later one serves them all. Must not know sockets or retries.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Any, Final, NamedTuple

from logboom.base.errors import LogboomError
from logboom.base.ports import Bytes
from logboom.base.settings import join_address
from logboom.client.codes import ErrorCode, error_of

Api = tuple[int, int]
"""API key and version."""

PRODUCE: Final[Api] = (0, 7)
METADATA: Final[Api] = (3, 4)
INIT_PRODUCER_ID: Final[Api] = (22, 1)

_TIMEOUT_MS: Final = 30_000
_ACKS_ALL: Final = -1
_NULL: Final = -1
_MAY_MAKE_STREAMS: Final = b"\x01"

_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_INT_BYTES: Final = _INT.size
_PRODUCE_HEAD: Final = Struct(">hhii")
_PRODUCE_PARTITION: Final = Struct(">ii")
_PRODUCED_PARTITION: Final = Struct(">ihqqq")
_PRODUCED_STREAM_BYTES: Final = 6
_BROKER_BYTES: Final = 12
_FLAG: Final = Struct(">?")
_STREAM_BYTES: Final = 9
_PARTITION: Final = Struct(">hii")
_PARTITION_BYTES: Final = _PARTITION.size + 2 * _INT_BYTES
_PRODUCER_ASKED: Final = Struct(">hi")
_PRODUCER: Final = Struct(">ihqh")
_TRANSACTION_TIMEOUT_MS: Final = 0x7FFFFFFF
"""Brokers ignore it without transactions; the Java client sends the same value."""


class AnswerError(LogboomError):
    """An answer that cannot be read."""


class TopicPartition(NamedTuple):
    """One partition of a stream."""

    stream: str
    partition: int


class PartitionMetadata(NamedTuple):
    """Where a partition is led."""

    error: ErrorCode
    leader: int
    """The number of a broker; -1 where there is none."""


@dataclass(frozen=True, slots=True)
class StreamMetadata:
    """A stream's partitions; `error` where there is no such thing."""

    error: ErrorCode
    partitions: Mapping[int, PartitionMetadata]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The brokers' addresses and the requested streams."""

    brokers: Mapping[int, str]
    streams: Mapping[str, StreamMetadata]


class ProducerId(NamedTuple):
    """Identifies the producer, so that the log recognises repeats."""

    number: int
    epoch: int


# --- requests ---------------------------------------------------------------------------------------------------


def produce_request(batches: Mapping[TopicPartition, Sequence[Bytes]], timeout_ms: int = _TIMEOUT_MS) -> list[Bytes]:
    """One batch, in parts, for each partition; acknowledged by all in-sync replicas."""
    by_stream: dict[str, list[TopicPartition]] = {}
    for tp in batches:
        by_stream.setdefault(tp.stream, []).append(tp)
    parts: list[Bytes] = [_PRODUCE_HEAD.pack(_NULL, _ACKS_ALL, timeout_ms, len(by_stream))]
    for stream, tps in by_stream.items():
        parts.append(_text(stream) + _INT.pack(len(tps)))
        for tp in tps:
            batch = batches[tp]
            parts += (_PRODUCE_PARTITION.pack(tp.partition, sum(map(len, batch))), *batch)
    return parts


def metadata_request(streams: Iterable[str]) -> list[Bytes]:
    """A Metadata request. Missing streams are created where the broker allows that (auto.create.topics.enable)."""
    names = [_text(stream) for stream in streams]
    return [_INT.pack(len(names)), *names, _MAY_MAKE_STREAMS]


def producer_id_request() -> list[Bytes]:
    """An InitProducerId request without a transactional id."""
    return [_PRODUCER_ASKED.pack(_NULL, _TRANSACTION_TIMEOUT_MS)]


def _text(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


# --- answers ----------------------------------------------------------------------------------------------------


def produce_answer(body: Bytes) -> dict[TopicPartition, ErrorCode]:
    """The outcome of each partition's batch."""
    answer = _Answer(body)
    errors: dict[TopicPartition, ErrorCode] = {}
    for _ in range(answer.count(_PRODUCED_STREAM_BYTES)):
        stream = answer.text()
        for _ in range(answer.count(_PRODUCED_PARTITION.size)):
            partition, code, *_ = answer.fields(_PRODUCED_PARTITION)
            errors[TopicPartition(stream, partition)] = error_of(code)
    answer.fields(_INT)  # throttle time: brokers see to it themselves (KIP-219)
    return errors


def metadata_answer(body: Bytes) -> ClusterMetadata:
    """Where the streams are led."""
    answer = _Answer(body)
    answer.fields(_INT)  # throttle time
    brokers = dict(_broker(answer) for _ in range(answer.count(_BROKER_BYTES)))
    answer.text()  # cluster id
    answer.fields(_INT)  # controller
    return ClusterMetadata(brokers, dict(_stream(answer) for _ in range(answer.count(_STREAM_BYTES))))


def _broker(answer: "_Answer") -> tuple[int, str]:
    (number,), host, (port,) = answer.fields(_INT), answer.text(), answer.fields(_INT)
    answer.text()  # its rack
    return number, join_address(host, port)


def _stream(answer: "_Answer") -> tuple[str, StreamMetadata]:
    (code,), name = answer.fields(_SHORT), answer.text()
    answer.fields(_FLAG)  # whether it is internal
    partitions = dict(_partition(answer) for _ in range(answer.count(_PARTITION_BYTES)))
    return name, StreamMetadata(error_of(code), partitions)


def _partition(answer: "_Answer") -> tuple[int, PartitionMetadata]:
    code, partition, leader = answer.fields(_PARTITION)
    answer.skip_ints()  # its replicas
    answer.skip_ints()  # those in sync
    return partition, PartitionMetadata(error_of(code), leader)


def producer_id_answer(body: Bytes) -> tuple[ErrorCode, ProducerId]:
    """An error, or a producer id."""
    _, code, number, epoch = _Answer(body).fields(_PRODUCER)
    return error_of(code), ProducerId(number, epoch)


class _Answer:
    """Reads an answer from left to right; AnswerError where it is none."""

    def __init__(self, body: Bytes) -> None:
        self._body = memoryview(body)
        self._at = 0

    def fields(self, layout: Struct) -> tuple[Any, ...]:
        try:
            values = layout.unpack_from(self._body, self._at)
        except error:
            raise AnswerError("the answer of a broker ends too early") from None
        self._at += layout.size
        return values

    def count(self, entry_bytes: int) -> int:
        """Number of entries that follow, each of at least that many bytes; 0 for null. AnswerError if they cannot."""
        count: int = self.fields(_INT)[0]
        if not -1 <= count <= (len(self._body) - self._at) // entry_bytes:
            raise AnswerError(f"the answer of a broker claims {count} entries, which it has no room for")
        return max(count, 0)

    def text(self) -> str:
        (length,) = self.fields(_SHORT)
        start, self._at = self._at, self._at + max(length, 0)
        if length < -1 or self._at > len(self._body):
            raise AnswerError(f"the answer of a broker claims a text of {length} bytes, which it has no room for")
        return str(self._body[start : self._at], "utf-8", "replace")

    def skip_ints(self) -> None:
        count = self.count(_INT_BYTES)
        self._at += _INT_BYTES * count
