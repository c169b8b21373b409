"""Converts dead letters to records of the log and back, completely and at any size.

Knows records, the names of headers and a stream's size limit. Must not know why a record became a dead letter, nor
Spark.

A letter that is too large for one record of its stream is written in parts: the key, headers and value of the original
are packed into one text of bytes (MessagePack), which is cut into values of consecutive records of one partition. Each
part has the letter's own headers and `logboom-dead-part`: its number and how many there are. An interrupted attempt
leaves parts without the last one, and the next attempt begins with the first part again. So a reader starts over at
each first part and completes a letter at each last part.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import msgspec

from logboom.base.ids import Offset
from logboom.client.messages import TopicPartition
from logboom.pipeline.edge.record_columns import Packed
from logboom.pipeline.plan import names
from logboom.records import Record, build_batch
from logboom.records.header import HEADER_BYTES

_REASON_MAX_CHARS: Final = 4_000
_ROOM_BYTES: Final = 2_048
"""Reserve for a batch's header, lengths, and the growth of an incompressible batch."""
_GROWTH: Final = 200
"""lz4 (frames of stored blocks) and zstd enlarge incompressible data by less than this fraction (1/N)."""
_BATCH_MAX_BYTES: Final = 450_000
"""Size of the letters in one batch, except for a single larger letter: half of the default limit of servers."""


def usable_bytes(max_message_bytes: int) -> int:
    """The largest total size of key, headers and value of a record in a stream that accepts batches of this size."""
    return max(max_message_bytes - max_message_bytes // _GROWTH - _ROOM_BYTES, max_message_bytes // 2)


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter to be written."""

    stage: str
    reason: str
    form: str
    """One of `names.FORM_*`."""
    origin: str
    pipeline: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """The headers of the original record."""
    source: str | None = None
    edge: str | None = None
    """If a sink could not deliver: the stream of the edge that the sink reads."""

    def records(self, max_message_bytes: int) -> list[Record]:
        """The letter as one record, or as parts if it is too large for one record of the stream."""
        own = self._own_headers()
        whole = Record(Offset(0), 0, self.key, self.value, (*self.headers, *own))
        if size_of(whole) <= usable_bytes(max_message_bytes):
            return [whole]
        packed = _encode(_Packed(self.key, self.headers, self.value))
        room = max(usable_bytes(max_message_bytes) - size_of(replace(whole, key=None, value=None, headers=own)), 1)
        count = -(-len(packed) // room)
        return [
            Record(
                Offset(0),
                0,
                None,
                packed[room * number : room * (number + 1)],
                (*own, (names.HEADER_PART, f"{number + 1}/{count}".encode())),
            )
            for number in range(count)
        ]

    def _own_headers(self) -> tuple[tuple[str, bytes | None], ...]:
        edge = () if self.edge is None else ((names.HEADER_EDGE, self.edge.encode()),)
        return (
            (names.HEADER_REASON, self.reason[:_REASON_MAX_CHARS].encode()),
            (names.HEADER_STAGE, self.stage.encode()),
            (names.HEADER_FORM, self.form.encode()),
            (names.HEADER_SOURCE, None if self.source is None else self.source.encode()),
            (names.HEADER_ORIGIN, self.origin.encode()),
            (names.HEADER_PIPELINE, self.pipeline.encode()),
            *edge,
        )


class _Packed(msgspec.Struct, array_like=True):
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    value: bytes | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Packed).decode


def size_of(record: Record) -> int:
    """Its approximate size in a batch."""
    headers = sum(len(name.encode()) + len(value or b"") + 10 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + 30


def packed_records(records: Iterable[Record]) -> Iterator[Packed]:
    """Records made one by one, in pieces that a batch may hold."""
    group: list[Record] = []
    size = 0
    for record in records:
        if group and size + size_of(record) > _BATCH_MAX_BYTES:
            yield _piece(group)
            group, size = [], 0
        group.append(record)
        size += size_of(record)
    if group:
        yield _piece(group)


def _piece(records: list[Record]) -> Packed:
    return Packed(len(records), memoryview(build_batch(records))[HEADER_BYTES:])


class PutRecords(Protocol):
    """Takes records for a partition; see `LogWriter.put`."""

    def __call__(self, tp: TopicPartition, packed: Packed) -> None: ...


def put_letters(put: PutRecords, tp: TopicPartition, letters: Iterable[Letter], max_message_bytes: int) -> int:
    """Passes letters for one partition to a writer; returns their number."""
    count = 0

    def records() -> Iterator[Record]:
        nonlocal count
        for letter in letters:
            count += 1
            yield from letter.records(max_message_bytes)

    for piece in packed_records(records()):
        put(tp, piece)
    return count


# --- reading --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadLetter:
    """A letter as it was read; `offset` is of its record, or of the first of its parts."""

    stream: str
    partition: int
    offset: int
    time_ms: int
    own: Mapping[str, str]
    """The letter's own headers."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """The headers of the original record."""


_OWN: Final = frozenset(
    (
        names.HEADER_REASON,
        names.HEADER_STAGE,
        names.HEADER_FORM,
        names.HEADER_SOURCE,
        names.HEADER_ORIGIN,
        names.HEADER_PIPELINE,
        names.HEADER_EDGE,
        names.HEADER_RETRY_OF,
        names.HEADER_PART,
    )
)


def whole_letters(messages: Iterable[Any]) -> Iterator[ReadLetter]:
    """The letters in records of dead-letter streams, in order for each partition; incomplete letters are left out."""
    open_parts: dict[tuple[str, int, str | None, str | None], list[ReadLetter]] = {}
    for message in messages:
        one = _read(message)
        part = one.own.get(names.HEADER_PART)
        if part is None:
            yield one
            continue
        number, _, count = part.partition("/")
        letter = (one.stream, one.partition, one.own.get(names.HEADER_ORIGIN), one.own.get(names.HEADER_STAGE))
        parts = open_parts.setdefault(letter, [])
        if number == "1":
            parts.clear()
        parts.append(one)
        if number == count:
            del open_parts[letter]
            if len(parts) == int(count):
                yield _joined(parts)


def _read(message: Any) -> ReadLetter:
    pairs = [(str(name), as_bytes(value)) for name, value in headers_of(message)]
    own = {name: value.decode(errors="replace") for name, value in pairs if name in _OWN and value is not None}
    return ReadLetter(
        stream=str(message.topic()),
        partition=int(message.partition() or 0),
        offset=int(message.offset() or 0),
        time_ms=int(message.timestamp()[1]),
        own=own,
        key=as_bytes(message.key()),
        value=as_bytes(message.value()),
        headers=tuple((name, value) for name, value in pairs if name not in _OWN),
    )


def _joined(parts: list[ReadLetter]) -> ReadLetter:
    packed = _decode(b"".join(part.value or b"" for part in parts))
    return replace(parts[0], key=packed.key, value=packed.value, headers=packed.headers)


def headers_of(message: Any) -> list[tuple[str, Any]]:
    """Header names and values of a consumed record in order, for every form that clients return."""
    found = message.headers()
    return list(found.items() if isinstance(found, dict) else found or ())


def as_bytes(value: Any) -> bytes | None:
    """A key, value or header as bytes, for every form that clients return."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else bytes(value)
