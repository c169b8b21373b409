"""Finding records by time in a log's segments, and the size of what comes before an offset.

Indexes narrow the search to a few batches. Those are opened record by record, since the newest time in a batch's header
is what its producer wrote there, and may be wrong.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from logboom.base.errors import LogboomError, StorageError
from logboom.base.ids import Offset
from logboom.records import BatchHeader, Record, crc_ok, iter_records
from logboom.storage.config import TimedOffset
from logboom.storage.segment import NO_TIME, BadBatchError, Segment


@dataclass(frozen=True, slots=True)
class Wanted:
    """The record to find: the first record of this time or later, from `floor` up to below `ceiling`."""

    timestamp_ms: int
    floor: Offset
    ceiling: Offset
    max_decompressed_bytes: int


def first_at_or_after(segments: Sequence[Segment], wanted: Wanted) -> TimedOffset | None:
    """The record wanted, None where there is none; StorageError where it may be damaged."""
    for segment in segments:
        if segment.base >= wanted.ceiling:
            break
        with _reading(segment):
            found = _first_in_segment(segment, wanted)
        if found is not None:
            return found
    return None


@contextmanager
def _reading(segment: Segment) -> Iterator[None]:
    """What the disk does not give back of this segment is damage: it is reported, and StorageError is raised."""
    try:
        yield
    except OSError as error:
        damage = segment.walker.unreadable(error, segment.base)
        if damage is None:
            raise
        raise damage from error


def _first_in_segment(segment: Segment, wanted: Wanted) -> TimedOffset | None:
    if segment.index.entries.max_timestamp < wanted.timestamp_ms:
        return None
    for at, header in segment.reader.batches_from(lambda index: index.floor_time(wanted.timestamp_ms)):
        if header.base_offset >= wanted.ceiling:
            break
        if header.max_timestamp >= wanted.timestamp_ms:
            found = _first_in_batch(segment, at, header, wanted)
            if found is not None:
                return found
    return None


def _first_in_batch(segment: Segment, at: int, header: BatchHeader, wanted: Wanted) -> TimedOffset | None:
    for record in _records(segment, at, header, wanted.max_decompressed_bytes):
        if record.timestamp_ms >= wanted.timestamp_ms and wanted.floor <= record.offset < wanted.ceiling:
            return TimedOffset(record.offset, record.timestamp_ms, header.leader_epoch)
    return None


def _records(segment: Segment, at: int, header: BatchHeader, max_decompressed_bytes: int) -> Iterator[Record]:
    data = segment.file.handle.read(at, header.size_bytes)
    if not crc_ok(data, 0, header):
        raise BadBatchError(at, header.base_offset, "the CRC of the batch is wrong", segment.path)
    try:
        yield from iter_records(data, 0, header, max_decompressed_bytes)
    except LogboomError as error:
        raise StorageError(f"The batch at offset {header.base_offset} of {segment.path} cannot be opened.") from error


def bytes_before(segments: Sequence[Segment], offset: Offset, written_end: Offset) -> int:
    """Bytes of the batches before one at or below `offset`, as near as the index knows one."""
    total = 0
    for segment in segments:
        if offset < (written_end if segment.end is None else segment.end):
            with _reading(segment):
                return total + (segment.index.floor(offset)[1] if segment.base < offset else 0)
        total += segment.size_bytes
    return total


def newest_time(segments: Sequence[Segment], ceiling: Offset) -> int:
    """The newest time that any batch below `ceiling` claims, NO_TIME where there is none."""
    return max((_newest_in(segment, ceiling) for segment in segments if segment.base < ceiling), default=NO_TIME)


def newest_time_from(segments: Sequence[Segment], floor: Offset, ceiling: Offset, max_decompressed_bytes: int) -> int:
    """As `newest_time`, without what lies below `floor`, which is in the first segment. Reads all headers of that."""
    first = segments[0]
    newest = newest_time(segments[1:], ceiling)
    with _reading(first):
        for at, header in first.reader.batches_from(lambda index: index.floor(floor)):
            if header.base_offset >= ceiling:
                break
            if header.base_offset >= floor:
                newest = max(newest, header.max_timestamp)
            elif header.next_offset > floor:
                records = _records(first, at, header, max_decompressed_bytes)
                newest = max(newest, *(record.timestamp_ms for record in records if record.offset >= floor), NO_TIME)
    return newest


def _newest_in(segment: Segment, ceiling: Offset) -> int:
    with _reading(segment):
        index = segment.index.entries
        if segment.end is not None and segment.end <= ceiling:
            return index.max_timestamp
        newest = index.time_before(ceiling)
        for header in _below(segment, ceiling):
            newest = max(newest, header.max_timestamp)
    return newest


def _below(segment: Segment, ceiling: Offset) -> Iterator[BatchHeader]:
    for _, header in segment.reader.batches_from(lambda index: index.floor(ceiling)):
        if header.base_offset >= ceiling:
            return
        yield header
