"""The first pass of a cleaning: reading the dirty part of a log, to know which of its records are superseded."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from logboom.base.errors import LogboomError, StorageError
from logboom.base.ids import Offset
from logboom.base.units import MIB
from logboom.records import (
    CODEC_MASK,
    HEADER_BYTES,
    BatchHeader,
    keyed_records,
    read_header,
    records_body,
    whole_batches,
)
from logboom.storage.compaction.key_map import KeyMap, OffsetSet
from logboom.storage.segment import EpochAt, Segment, batch_fault

_READ_BYTES: Final = MIB
_SETS_SHARE: Final = 8
"""One part in so many of the memory is for sets of offsets, the others are for the keys."""

Batch = tuple[bytes, int, BatchHeader]
"""Bytes that hold a whole batch, where it begins in them, and its header."""

Step = Callable[[int], None]
"""Called with so many bytes as were read or written; it may wait, or raise an error that ends the work."""


def checked_batches(segment: Segment, start: Offset, epoch_at: EpochAt, step: Step) -> Iterator[Batch]:
    """Each batch of a complete segment from the one that holds `start` on, checked as a read checks it.

    StorageError where one is damaged or missing, which is reported too. Raises OSError.
    """
    expected, position = segment.index.floor(start) if start > segment.base else (segment.base, 0)
    was_open = segment.file.is_open
    handle, size, end = segment.file.handle, segment.size_bytes, segment.end
    assert end is not None, "a segment that is written to is not compacted"
    if not was_open:
        segment.file.release()  # `handle` stays open until this is done
    while position < size:
        data = handle.read(position, min(_READ_BYTES, size - position))
        if len(data) >= HEADER_BYTES and len(data) < read_header(data).size_bytes <= size - position:
            data = handle.read(position, read_header(data).size_bytes)
        step(len(data))
        # All of it nearly always, in one loop; what ends it is looked at again to tell a cut last batch from damage.
        sure, _ = whole_batches(data, expected, end, epoch_at)
        at = 0
        while len(data) - at >= HEADER_BYTES:
            header = read_header(data, at)
            if at and header.size_bytes > len(data) - at:
                break  # it begins the next read
            fault = None
            if at >= sure:
                fault = batch_fault(data, at, header, expected, size - position - at, epoch_at)
            if fault is not None:
                raise segment.walker.damage_error(position + at, expected, fault)
            expected = header.next_offset
            if expected > start:
                yield data, at, header
            at += header.size_bytes
        if not at:
            raise segment.walker.damage_error(position, expected, "the file ends inside a batch")
        position += at
    if expected != end:
        raise segment.walker.damage_error(size, expected, f"the offsets from here to {end} are missing")


def plain_records(batch: Batch, segment: Segment, max_decompressed_bytes: int) -> bytes:
    """The records of a batch as plain bytes. StorageError where they cannot be had."""
    data, at, header = batch
    if not header.attributes & CODEC_MASK:
        return data[at + HEADER_BYTES : at + header.size_bytes]
    try:
        return records_body(data, at, header, max_decompressed_bytes)
    except LogboomError as error:
        raise StorageError(
            f"The batch at offset {header.base_offset} of {segment.path} cannot be opened: {error}"
        ) from error


def is_compacted_by_key(header: BatchHeader) -> bool:
    """Whether the records of a batch are removed by their keys.

    Those of transactions are not: whether they were committed is not known here, and a record of an aborted one must
    not supersede any. Control batches have keys of their own.
    """
    return header.records_count > 0 and not header.is_control and not header.is_transactional


class DirtyPart:
    """What is known of the records from `start` up to below `end`."""

    def __init__(self, start: Offset, map_bytes: int) -> None:
        self.start = start
        self.end = start
        self.keys = KeyMap(map_bytes - map_bytes // _SETS_SHARE)
        """Each key in here; a record of such a key below `start` is superseded."""
        self.superseded = OffsetSet()
        """Records in here that are not the latest of their key, or have none."""
        self.with_tombstones = OffsetSet()
        """Base offsets of the batches in here that have a record without a value."""
        self._max_set_bytes = map_bytes // _SETS_SHARE

    def read(self, segments: Iterable[Segment], epoch_at: EpochAt, step: Step, *, max_decompressed_bytes: int) -> None:
        """Read complete segments that follow each other, from the one that holds `start` on.

        StorageError where a batch is damaged or cannot be opened. Raises OSError.
        """
        for segment in segments:
            for batch in checked_batches(segment, self.start, epoch_at, step):
                header = batch[2]
                if is_compacted_by_key(header):
                    body = plain_records(batch, segment, max_decompressed_bytes)
                    try:
                        if not self._take(body, header):
                            return
                    except LogboomError as error:
                        raise StorageError(f"The batch at offset {header.base_offset} is wrong: {error}") from error
                self.end = header.next_offset
                if self.superseded.size_bytes + self.with_tombstones.size_bytes > self._max_set_bytes:
                    return

    def _take(self, body: bytes, header: BatchHeader) -> bool:
        """Note the keys of a batch; False where there was no room for one, at which this part ends."""
        base, start = header.base_offset, self.start
        put, supersede = self.keys.put, self.superseded.add
        for delta, key, has_value, _, _ in keyed_records(body, header.records_count):
            offset = Offset(base + delta)
            if offset < start:
                continue
            if key is None:
                supersede(offset)
                continue
            before = put(key, offset)
            if before is None:
                self.end = offset
                return False
            if before >= 0:
                supersede(before)
            if not has_value:
                self.with_tombstones.add(base)
        return True
