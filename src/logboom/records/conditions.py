"""The headers by which a producer sets a condition for a record, and a batch's records without them.

A condition is a matter of the request that carries it and not of the record: a copy of the record in another stream
must not carry it along. So the broker stores a record without these headers, as NATS removes `Nats-Expected-*` headers
from what it copies into other streams.

What a condition means is known elsewhere (`broker.partition.conditions`); here are names and bytes.
"""

from typing import Final, NamedTuple

from logboom.base.errors import CorruptBatchError
from logboom.records.varint import MAX_LONG_BYTES, read_varint, varint

EXPECTED_OFFSET: Final = b"logboom-expected-offset"
"""The header that makes a record conditional: the offset of the latest record of its key, or -1."""
READ_TO: Final = b"logboom-read-to"
"""Beside it: the offset up to which the writer has read the partition."""
STREAM_ID: Final = b"logboom-stream-id"
"""Beside it: the id of the stream that the writer has read, as Kafka's tools print topic ids."""

CONDITION_HEADERS: Final = frozenset((EXPECTED_OFFSET, READ_TO, STREAM_ID))


class ConditionHeaders(NamedTuple):
    """The headers of one record's condition, as they came."""

    record: int
    """The record's place in its batch, from 0."""
    key: bytes | None
    fields: tuple[tuple[bytes, bytes | None], ...]
    """Names and values, a name perhaps more than once."""


def take_conditions(body: bytes, count: int) -> tuple[bytes, list[ConditionHeaders]]:
    """The plain records of a validated batch without the headers of conditions, and those headers.

    They are taken from records that have `EXPECTED_OFFSET` alone; without it, the other names mean nothing.
    """
    pieces: list[bytes] = []
    found: list[ConditionHeaders] = []
    at = copied = 0
    try:
        for index in range(count):
            start = at
            length, at = read_varint(body, start)
            content, at = at, at + length
            key, headers_at = _key_and_headers(body, content)
            fields, kept = _headers(body, headers_at)
            if any(name == EXPECTED_OFFSET for name, _ in fields):
                found.append(ConditionHeaders(index, key, tuple(fields)))
                rest = body[content:headers_at] + kept
                pieces += (body[copied:start], varint(len(rest)), rest)
                copied = at
    except IndexError:
        raise CorruptBatchError("A record reaches past the end of its batch.") from None
    pieces.append(body[copied:])
    return b"".join(pieces), found


def _key_and_headers(body: bytes, at: int) -> tuple[bytes | None, int]:
    """The key of the record whose attributes are at `at`, and where the count of its headers stands."""
    _, at = read_varint(body, at + 1, MAX_LONG_BYTES)
    _, at = read_varint(body, at)
    key_length, at = read_varint(body, at)
    key = None
    if key_length >= 0:
        key = body[at : at + key_length]
        at += key_length
    value_length, at = read_varint(body, at)
    return key, at + max(value_length, 0)


def _headers(body: bytes, at: int) -> tuple[list[tuple[bytes, bytes | None]], bytes]:
    """The headers of conditions among those whose count is at `at`, and the others as bytes, with their count."""
    count, at = read_varint(body, at)
    fields: list[tuple[bytes, bytes | None]] = []
    kept: list[bytes] = []
    for _ in range(count):
        start = at
        name_length, at = read_varint(body, at)
        name, at = body[at : at + name_length], at + name_length
        value_length, at = read_varint(body, at)
        value = body[at : at + value_length] if value_length >= 0 else None
        at += max(value_length, 0)
        if name in CONDITION_HEADERS:
            fields.append((name, value))
        else:
            kept.append(body[start:at])
    return fields, varint(len(kept)) + b"".join(kept)
