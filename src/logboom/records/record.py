"""Single records as objects, for group offsets, tools, tests and searches by time. Produce and fetch never make any."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from logboom.base.errors import CorruptBatchError, InvalidRecordError, UnsupportedCompressionError
from logboom.base.ids import NO_EPOCH, NO_PRODUCER, Epoch, Offset
from logboom.base.ports import Bytes
from logboom.records.codec import compress, decompress
from logboom.records.header import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    pack_header,
    write_crc,
)
from logboom.records.varint import MAX_LONG_BYTES, read_varint, varint

Headers = tuple[tuple[str, bytes | None], ...]

_NULL = varint(-1)
_ZERO = varint(0)


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a batch."""

    offset: Offset
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def batch_codec(header: BatchHeader) -> Codec:
    """The batch's codec; UnsupportedCompressionError where the bits name none."""
    try:
        return Codec(header.attributes & CODEC_MASK)
    except ValueError:
        raise UnsupportedCompressionError(f"No codec has the number {header.attributes & CODEC_MASK}.") from None


def records_body(buffer: Bytes, position: int, header: BatchHeader, max_decompressed_bytes: int) -> bytes:
    """The records of a whole batch as plain bytes. Raises as `decompress` does."""
    start, end = position + HEADER_BYTES, position + header.size_bytes
    if not header.attributes & CODEC_MASK and end - start <= max_decompressed_bytes:
        return bytes(buffer[start:end])  # at once, since small batches are read by the hundred thousand
    body = memoryview(buffer)[start:end]
    return decompress(batch_codec(header), body, max_decompressed_bytes)


def iter_records(buffer: Bytes, position: int, header: BatchHeader, max_decompressed_bytes: int) -> Iterator[Record]:
    """Every record of a whole batch, offsets absolute.

    Raises as `decompress` does, and CorruptBatchError where a record reaches past its end.
    """
    body = records_body(buffer, position, header, max_decompressed_bytes)
    append_time = header.max_timestamp if header.uses_append_time else None
    at = 0
    for _ in range(header.records_count):
        try:
            length, start = read_varint(body, at)
            if length < 0 or start + length > len(body):
                raise CorruptBatchError("A record reaches past the end of its batch.")
            at = start + length
            yield _read_record(body[start:at], header, append_time)
        except IndexError:
            raise CorruptBatchError("A record reaches past the end of its batch.") from None
    if at != len(body):
        raise CorruptBatchError("Bytes follow the last record of a batch.")


def record_value(record: bytes) -> bytes | None:
    """The value of one plain record, its length in front included. CorruptBatchError where it reaches past its end."""
    try:
        _, at = read_varint(record, 0)
        _, at = read_varint(record, at + 1, MAX_LONG_BYTES)  # after the attributes
        _, at = read_varint(record, at)
        _, at = _read_field(record, at)
        return _read_field(record, at)[0]
    except IndexError:
        raise CorruptBatchError("A record reaches past its end.") from None


def _read_record(body: bytes, header: BatchHeader, append_time: int | None) -> Record:
    timestamp_delta, at = read_varint(body, 1, MAX_LONG_BYTES)
    offset_delta, at = read_varint(body, at)
    key, at = _read_field(body, at)
    value, at = _read_field(body, at)
    headers, at = _read_headers(body, at)
    if at != len(body):
        raise CorruptBatchError("The fields of a record do not add up to its length.")
    timestamp_ms = header.base_timestamp + timestamp_delta if append_time is None else append_time
    return Record(Offset(header.base_offset + offset_delta), timestamp_ms, key, value, headers)


def _read_field(body: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(body, at)
    if length == -1:
        return None, at
    if length < 0 or at + length > len(body):
        raise CorruptBatchError("A field reaches past the end of its record.")
    return body[at : at + length], at + length


def _read_headers(body: bytes, at: int) -> tuple[Headers, int]:
    count, at = read_varint(body, at)
    if count == 0:
        return (), at
    if count < 0 or 2 * count > len(body) - at:
        raise CorruptBatchError(f"A record cannot have {count} headers.")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_field(body, at)
        value, at = _read_field(body, at)
        if name is None:
            raise CorruptBatchError("A header has no name.")
        # Header names are UTF-8 by agreement only; other bytes must not make the record unreadable.
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers), at


def _pack_record(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    key, value, headers = record.key, record.value, record.headers
    parts = [
        b"\x00",
        varint(timestamp_delta),
        varint(offset_delta),
        _NULL if key is None else varint(len(key)) + key,
        _NULL if value is None else varint(len(value)) + value,
        varint(len(headers)) if headers else _ZERO,
    ]
    for name, content in headers:
        name_bytes = name.encode()
        parts += (varint(len(name_bytes)), name_bytes)
        parts.append(_NULL if content is None else varint(len(content)) + content)
    body = b"".join(parts)
    return varint(len(body)) + body


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    leader_epoch: int = NO_EPOCH,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    control: bool = False,
    transactional: bool = False,
    append_time_ms: int | None = None,
) -> bytearray:
    """One batch of at least one record; offsets run on from `base_offset`, whatever the records' own say."""
    items = list(records)
    if not items:
        raise InvalidRecordError("A record batch has at least one record.")
    base_timestamp = items[0].timestamp_ms
    max_timestamp = max(record.timestamp_ms for record in items) if append_time_ms is None else append_time_ms
    plain = b"".join([_pack_record(r, r.timestamp_ms - base_timestamp, delta) for delta, r in enumerate(items)])
    attributes = APPEND_TIME_BIT if append_time_ms is not None else 0
    attributes |= (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
    return seal_batch(
        plain,
        len(items),
        base_offset=base_offset,
        codec=codec,
        attributes=attributes,
        times_ms=(base_timestamp, max_timestamp),
        leader_epoch=leader_epoch,
        producer=(producer_id, producer_epoch, base_sequence),
    )


def seal_batch(
    plain: bytes,
    count: int,
    *,
    times_ms: tuple[int, int],
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    leader_epoch: int = NO_EPOCH,
    producer: tuple[int, int, int] = (NO_PRODUCER, -1, -1),
    level: int | None = None,
) -> bytearray:
    """One batch of `count` records that are bytes already, not compressed yet.

    `times_ms` are the first timestamp and the newest, `producer` its id, epoch and the first sequence, `level` that of
    the codec (None: Kafka's default).
    """
    body = compress(codec, plain, level=level)
    header = BatchHeader(
        base_offset=Offset(base_offset),
        batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body),
        leader_epoch=Epoch(leader_epoch),
        magic=MAGIC,
        crc=0,
        attributes=attributes | codec,
        last_offset_delta=count - 1,
        base_timestamp=times_ms[0],
        max_timestamp=times_ms[1],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        records_count=count,
    )
    buffer = bytearray(HEADER_BYTES + len(body))
    buffer[HEADER_BYTES:] = body
    pack_header(buffer, 0, header)
    write_crc(buffer, 0, len(buffer))
    return buffer


def recompress(buffer: Bytes, header: BatchHeader, codec: Codec, level: int, max_decompressed_bytes: int) -> bytearray:
    """A whole, validated batch with its records in another codec; all else in its header stays as it is.

    Raises as `decompress` does.
    """
    body = compress(codec, records_body(buffer, 0, header, max_decompressed_bytes), level=level)
    out = bytearray(HEADER_BYTES + len(body))
    out[HEADER_BYTES:] = body
    changed = header._replace(
        batch_length=len(out) - LENGTH_PREFIX_BYTES, attributes=header.attributes & ~CODEC_MASK | codec
    )
    pack_header(out, 0, changed)
    write_crc(out, 0, len(out))
    return out
