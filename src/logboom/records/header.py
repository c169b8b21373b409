"""The fixed header of a record batch, magic 2: what is read and patched without opening the records.

It knows the 61 bytes of the header and the CRC; it must not know what a record or a codec looks like inside.
Layout: https://kafka.apache.org/documentation/#recordbatch (KIP-98).
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from logboom.base.errors import CorruptBatchError
from logboom.base.ids import Epoch, Offset
from logboom.base.ports import Bytes

HEADER_BYTES: Final = 61
"""Bytes before the first record."""

LENGTH_PREFIX_BYTES: Final = 12
"""Bytes that `batch_length` does not count: the base offset and the length itself."""

MIN_BATCH_LENGTH: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES
MAGIC: Final = 2
CRC_POSITION: Final = 17
CRC_START: Final = 21
"""First byte the CRC covers; base offset and leader epoch lie before it and may be patched."""

ATTRIBUTES_POSITION: Final = 21
MAX_TIMESTAMP_POSITION: Final = 35

CODEC_MASK: Final = 0x07
APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

MAX_SEQUENCE: Final = 2**31 - 1

_HEADER = Struct(">qiibIhiqqqhii")
_header: Final[Callable[[type["BatchHeader"], tuple[int, ...]], "BatchHeader"]] = tuple.__new__
"""`BatchHeader._make` without its check of the count, which the layout gives: read once per produced batch."""

_FRONT = Struct(">qiibIhi")
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_LENGTH = Struct(">i")
_COUNT_AT: Final = HEADER_BYTES - 4
_NO_RECORDS: Final = bytes(4)
_EPOCH_POSITION: Final = 12


class Codec(IntEnum):
    """How the records of a batch are compressed; the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def add_to_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records on; after 2**31 - 1 comes 0.

    >>> add_to_sequence(2**31 - 1, 1)
    0
    """
    return (sequence + count) & MAX_SEQUENCE


class BatchHeader(NamedTuple):
    """The header of one batch, field for field as on the wire."""

    base_offset: Offset
    batch_length: int
    leader_epoch: Epoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, header included."""
        return LENGTH_PREFIX_BYTES + self.batch_length

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        """The offset after the batch."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def codec(self) -> Codec:
        """The codec; ValueError where the bits name none."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def uses_append_time(self) -> bool:
        """Whether every record's time is `max_timestamp`, the moment of the append."""
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when on the tombstones of a compacted batch may be removed, None where that is not decided yet. The
        field of the base timestamp holds it then (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, or -1 for a producer that is not idempotent."""
        return add_to_sequence(self.base_sequence, self.last_offset_delta) if self.base_sequence >= 0 else -1


def holds_records(batches: Bytes) -> bool:
    """Whether any of these whole batches has a record."""
    at, end = 0, len(batches)
    while at < end:
        if batches[at + _COUNT_AT : at + HEADER_BYTES] != _NO_RECORDS:
            return True
        at += LENGTH_PREFIX_BYTES + _LENGTH.unpack_from(batches, at + 8)[0]
    return False


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """The header at `position`. Nothing but the length of the buffer is checked: CorruptBatchError when it is short."""
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise CorruptBatchError(
            f"A record batch has a header of {HEADER_BYTES} bytes; {len(buffer) - position} are left."
        )
    return _header(BatchHeader, _HEADER.unpack_from(buffer, position))


def crc_ok(buffer: Bytes, position: int, header: BatchHeader) -> bool:
    """Whether the CRC-32C in the header matches the bytes; False as well where the batch is not whole."""
    end = position + header.size_bytes
    if header.batch_length < MIN_BATCH_LENGTH or end > len(buffer):
        return False
    return bool(crc32c(memoryview(buffer)[position + CRC_START : end]) == header.crc)


def whole_batches(
    buffer: Bytes, expected: Offset, ceiling: Offset, epoch_at: Callable[[Offset], Epoch]
) -> tuple[int, Offset]:
    """How many bytes of whole, valid batches a buffer begins with, and the offset after them.

    Each must begin where the one before ended, the first at `expected`, lie below `ceiling`, be of the epoch that
    `epoch_at` has for its offset, and match its CRC. It does not say what ended the run: the caller looks there.
    """
    view, at, size = memoryview(buffer), 0, len(buffer)
    while size - at >= HEADER_BYTES and expected < ceiling:
        base, length, epoch, magic, crc, _, delta = _FRONT.unpack_from(buffer, at)
        end, following = at + LENGTH_PREFIX_BYTES + length, base + delta + 1
        if (
            base != expected
            or magic != MAGIC
            or not MIN_BATCH_LENGTH <= length <= size - at - LENGTH_PREFIX_BYTES
            or delta < 0
            or following > ceiling
            or epoch_at(expected) != epoch
            or crc32c(view[at + CRC_START : end]) != crc
        ):
            break
        at, expected = end, following
    return at, expected


def whole_headers(
    buffer: bytes, expected: Offset, ceiling: Offset, epoch_at: Callable[[Offset], Epoch]
) -> list[tuple[bytes, int, BatchHeader]]:
    """The buffer, position and header of each of the batches that `whole_batches` counts; the epochs must rise with the
    offsets."""
    view, at, size = memoryview(buffer), 0, len(buffer)
    found: list[tuple[bytes, int, BatchHeader]] = []
    unpack, make, checksum = _HEADER.unpack_from, _header, crc32c
    epoch = epoch_at(expected)
    is_one_epoch = epoch_at(Offset(max(expected, ceiling - 1))) == epoch
    while size - at >= HEADER_BYTES and expected < ceiling:
        fields = unpack(buffer, at)
        base, length, own_epoch, magic, crc, _, delta = fields[:7]
        end, following = at + LENGTH_PREFIX_BYTES + length, base + delta + 1
        if (
            base != expected
            or magic != MAGIC
            or not MIN_BATCH_LENGTH <= length <= size - at - LENGTH_PREFIX_BYTES
            or delta < 0
            or following > ceiling
            or (epoch if is_one_epoch else epoch_at(expected)) != own_epoch
            or checksum(view[at + CRC_START : end]) != crc
        ):
            break
        found.append((buffer, at, make(BatchHeader, fields)))
        at, expected = end, following
    return found


def iter_batches(buffer: Bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; stops before an incomplete one.

    CorruptBatchError where a length is impossible. The CRC is not checked here.
    """
    position, size = 0, len(buffer)
    while size - position >= HEADER_BYTES:
        header = _header(BatchHeader, _HEADER.unpack_from(buffer, position))
        if header.batch_length < MIN_BATCH_LENGTH:
            raise CorruptBatchError(f"A record batch cannot be {header.batch_length} bytes long.")
        end = position + LENGTH_PREFIX_BYTES + header.batch_length
        if end > size:
            return
        yield position, header
        position = end


def patch_batch(buffer: bytearray | memoryview, position: int, base_offset: Offset, leader_epoch: Epoch) -> None:
    """Write the base offset and the leader epoch in place; the CRC does not cover them."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + _EPOCH_POSITION, leader_epoch)


def stamp_append_time(buffer: bytearray | memoryview, position: int, now_ms: int) -> None:
    """Turn the batch into one of append time: attribute bit, max timestamp, and the CRC over both."""
    header = read_header(buffer, position)
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, header.attributes | APPEND_TIME_BIT)
    _OFFSET.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, now_ms)
    write_crc(buffer, position, header.size_bytes)


def write_crc(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    """Compute the CRC of the batch at `position` and write it into its header."""
    crc = crc32c(memoryview(buffer)[position + CRC_START : position + size_bytes])
    _CRC.pack_into(buffer, position + CRC_POSITION, crc)


def pack_header(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Write a whole header, its CRC field as given."""
    _HEADER.pack_into(buffer, position, *header)
