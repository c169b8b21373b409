"""Functions over the batches of one segment file.

`walk` goes from batch to batch by their headers, checking what a header alone can tell; `walk_checked` checks each CRC,
too; `salvage` finds the batches that are still good in a stretch that is damaged.
"""

from collections.abc import Callable, Iterator
from typing import Final

from logboom.base.errors import StorageError
from logboom.base.ids import NO_EPOCH, Epoch, Offset
from logboom.base.ports import Bytes, File
from logboom.records import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, MIN_BATCH_LENGTH, BatchHeader, crc_ok, read_header
from logboom.storage.config import Damage

WINDOW_BYTES: Final = 64 * 1024
_LARGE_BATCH_BYTES: Final = WINDOW_BYTES // 4
_MAGIC_POSITION: Final = 16
_MAGIC_BYTE: Final = bytes((MAGIC,))

EpochAt = Callable[[Offset], Epoch]
"""The leader epoch that a batch at an offset must have; NO_EPOCH where that is not known."""


class BadBatchError(StorageError):
    """What lies at `position` is not the batch that must lie there."""

    def __init__(self, position: int, offset: Offset, reason: str, path: str = "a segment") -> None:
        super().__init__(str(Damage(path, position, offset, reason)))
        self.path = path
        self.position = position
        self.offset = offset
        self.reason = reason


class NotCachedError(Exception):
    """The bytes are not in memory, and waiting for them is not allowed here."""


def read_some(file: File, position: int, length: int, cached_only: bool) -> bytes | memoryview:
    """Read, or raise NotCachedError where that would wait and must not."""
    if not cached_only:
        return file.read(position, length)
    data = file.read_cached(position, length)
    if data is None:
        raise NotCachedError
    return data


def header_fault(header: BatchHeader, expected: Offset, room: int) -> str | None:
    """Why this cannot be the header of the batch at `expected` with `room` bytes left; None if it can."""
    if header.magic != MAGIC:
        return "there is no record batch"
    if header.batch_length < MIN_BATCH_LENGTH or header.last_offset_delta < 0:
        return "the header of the batch is impossible"
    if header.base_offset != expected:
        return f"the batch says offset {header.base_offset} where {expected} must follow"
    if LENGTH_PREFIX_BYTES + header.batch_length > room:
        return "the batch is cut"
    return None


def batch_fault(
    data: Bytes, at: int, header: BatchHeader, expected: Offset, room: int, epoch_at: EpochAt
) -> str | None:
    """As `header_fault`, and the epoch, which no CRC covers, and the CRC."""
    fault = header_fault(header, expected, room)
    if fault is not None:
        return fault
    epoch = epoch_at(expected)
    if epoch not in (header.leader_epoch, NO_EPOCH):
        return f"the batch says leader epoch {header.leader_epoch} where {epoch} was"
    if not crc_ok(data, at, header):
        return "the CRC of the batch is wrong"
    return None


def walk(
    file: File, position: int, expected: Offset, end: int, *, cached_only: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from `position` up to `end`; BadBatchError where one cannot be right."""
    window: bytes | memoryview = b""
    start, last_bytes = position, 0
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(window):
            start, at = position, 0
            # Behind a large batch the header alone: most of a window would be records that nobody looks at.
            wanted = HEADER_BYTES if last_bytes >= _LARGE_BATCH_BYTES else WINDOW_BYTES
            window = read_some(file, start, min(wanted, end - start), cached_only)
            if len(window) < HEADER_BYTES:
                raise BadBatchError(position, expected, "the file ends inside a batch")
        header = read_header(window, at)
        fault = header_fault(header, expected, end - position)
        if fault is not None:
            raise BadBatchError(position, expected, fault)
        yield position, header
        last_bytes = header.size_bytes
        position += last_bytes
        expected = header.next_offset


def walk_checked(file: File, position: int, expected: Offset, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """As `walk`, with the CRC of every batch checked: reads everything. The epochs are not known yet."""
    for at, header in walk(file, position, expected, end):
        data = file.read(at, header.size_bytes)
        if not crc_ok(data, 0, header):
            raise BadBatchError(at, header.base_offset, "the CRC of the batch is wrong")
        yield at, header


def salvage(data: bytes, expected: Offset, limit: Offset, epoch_at: EpochAt) -> Iterator[tuple[int, BatchHeader]]:
    """Every batch of a stretch that is beyond doubt, with its position there.

    The stretch begins with the batch at `expected` and ends before `limit`. Behind damage the search goes on byte by
    byte; what it finds must be right in every field that can be checked.
    """
    at, sure = 0, True
    while at + HEADER_BYTES <= len(data):
        header = read_header(data, at)
        plausible = header.base_offset == expected if sure else expected <= header.base_offset < limit
        if (
            plausible
            and header.next_offset <= limit
            and batch_fault(data, at, header, header.base_offset, len(data) - at, epoch_at) is None
        ):
            yield at, header
            at += header.size_bytes
            expected, sure = header.next_offset, True
            continue
        sure = False
        found = data.find(_MAGIC_BYTE, at + 1 + _MAGIC_POSITION)
        if found < 0:
            return
        at = found - _MAGIC_POSITION
