"""Batches with some of their records removed, as key compaction leaves them (KIP-58; Kafka's MemoryRecords.filterTo).

Offsets never change: a rewritten batch keeps its base offset and its last offset delta, its producer, sequence and
leader epoch, its codec and its records' deltas, so that the records that stay are copied as bytes.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat

from logboom.base.ids import NO_PRODUCER, Epoch, Offset
from logboom.records.codec import compress
from logboom.records.header import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    Codec,
    pack_header,
    patch_batch,
    read_header,
    write_crc,
)
from logboom.records.record import batch_codec
from logboom.records.validate import NO_TIMESTAMP
from logboom.records.varint import CONTINUES, MAX_LONG_BYTES, read_varint, varint

RecordBounds = tuple[int, int]
"""Where a record begins and ends in the plain records of its batch."""

MAX_OFFSET_DELTA = 2**31 - 1
"""The last offset delta of a batch is a signed 32-bit number."""


def retain_records(
    header: BatchHeader,
    body: bytes,
    retained: Sequence[RecordBounds],
    *,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> bytearray:
    """The batch of `header` with the records of `retained` alone, of which there is at least one.

    `body` are all of its records, plain. `delete_horizon_ms`, for a batch that has none yet, is the time from which its
    tombstones may be removed. It takes the place of the base timestamp (KIP-534), and the records' deltas follow it.
    `level` is that of the codec, its default in Kafka without one.
    """
    base, attributes = header.base_timestamp, header.attributes
    if delete_horizon_ms is None:
        plain = b"".join([body[start:end] for start, end in retained])
    else:
        shift = base - delete_horizon_ms
        plain = b"".join([_with_delta(body, record, shift) for record in retained])
        base, attributes = delete_horizon_ms, attributes | DELETE_HORIZON_BIT
    newest = header.max_timestamp
    if not attributes & APPEND_TIME_BIT:
        newest = header.base_timestamp + max(map(_timestamp_delta, repeat(body), retained))
    return _sealed(
        header._replace(attributes=attributes, base_timestamp=base, max_timestamp=newest, records_count=len(retained)),
        compress(batch_codec(header), plain, level=level),
    )


def replace_records(header: BatchHeader, plain: bytes) -> tuple[bytearray, BatchHeader]:
    """The batch of `header` with as many other records, plain, and its header; all else in it stays as it is."""
    buffer = _sealed(header, compress(batch_codec(header), plain))
    return buffer, read_header(buffer)


def without_records(header: BatchHeader) -> bytearray:
    """The batch of `header` with no record left: its offsets, producer, sequences and leader epoch stay known.

    It has no timestamp either, since there is no record that a search by time could find.
    """
    return _sealed(
        header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            records_count=0,
        ),
        b"",
    )


def gap_batch(start: Offset, end: Offset, leader_epoch: Epoch) -> bytearray:
    """A batch without records or producer that stands for the offsets from `start` up to below `end`.

    Every reader of Kafka's protocol continues after it, as after the empty batches that Kafka's own cleaner leaves.
    """
    assert start < end <= start + MAX_OFFSET_DELTA + 1
    gap = bytearray(_gap_of(end - start - 1))
    patch_batch(gap, 0, start, leader_epoch)
    return gap


@lru_cache(1024)
def _gap_of(last_offset_delta: int) -> bytes:
    """Such a batch, whose CRC does not cover base offset and leader epoch; mostly few offsets are missing in a row."""
    header = BatchHeader(
        base_offset=Offset(0),
        batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES,
        leader_epoch=Epoch(0),
        magic=MAGIC,
        crc=0,
        attributes=Codec.NONE,
        last_offset_delta=last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=0,
    )
    return bytes(_sealed(header, b""))


def is_gap(header: BatchHeader) -> bool:
    """Whether a batch stands for removed offsets alone, and neither a producer nor a transaction needs it."""
    return not header.records_count and header.producer_id == NO_PRODUCER and not header.is_control


def _sealed(header: BatchHeader, body: bytes) -> bytearray:
    buffer = bytearray(HEADER_BYTES + len(body))
    buffer[HEADER_BYTES:] = body
    pack_header(buffer, 0, header._replace(batch_length=len(buffer) - LENGTH_PREFIX_BYTES))
    write_crc(buffer, 0, len(buffer))
    return buffer


def _timestamp_delta(body: bytes, record: RecordBounds) -> int:
    at = record[0]
    while body[at] >= CONTINUES:
        at += 1
    at += 2  # after the length, the attributes
    raw = body[at]
    return (raw >> 1) ^ -(raw & 1) if raw < CONTINUES else read_varint(body, at, MAX_LONG_BYTES)[0]


def _with_delta(body: bytes, record: RecordBounds, shift_ms: int) -> bytes:
    """The record's bytes with so much added to its timestamp delta."""
    _, attributes_at = read_varint(body, record[0])
    delta, rest_at = read_varint(body, attributes_at + 1, MAX_LONG_BYTES)
    content = body[attributes_at : attributes_at + 1] + varint(delta + shift_ms) + body[rest_at : record[1]]
    return varint(len(content)) + content
