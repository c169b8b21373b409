"""Reading one segment for a compaction: its batches, checked as in any read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from logboom.base.errors import LogboomError, StorageError, with_cause
from logboom.base.ids import Offset
from logboom.base.ports import File
from logboom.base.units import MIB
from logboom.records import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    records_body,
    whole_headers,
)
from logboom.storage.segment import UNREADABLE, BadBatchError, EpochAt, batch_fault

NEVER_BY_KEY: Final = CONTROL_BIT | TRANSACTIONAL_BIT
"""Attributes of batches whose records are not removed by key."""
NOT_LONE: Final = NEVER_BY_KEY | CODEC_MASK
"""Attributes of batches that `lone_key` does not read."""
_READ_BYTES: Final = MIB

Batch = tuple[bytes, int, BatchHeader]
"""Bytes that hold a whole batch, where it begins in them, and its header."""

Step = Callable[[int], None]
"""Called with the number of bytes that were read or written; it may wait, or raise an error that ends the work."""


@dataclass(frozen=True, slots=True)
class Source:
    """A complete segment to read. Its file is already open."""

    path: str
    """For messages."""
    first_offset: Offset
    first_position: int
    """Offset and position of the batch that reading begins with."""
    end: Offset
    size_bytes: int


def checked_reads(source: Source, file: File, start: Offset, epoch_at: EpochAt, step: Step) -> Iterator[list[Batch]]:
    """The batches from the one that holds `start` on, those of one read together.

    BadBatchError where one is damaged or missing, or where the disk does not give it back. Raises OSError.
    """
    expected, position, size = source.first_offset, source.first_position, source.size_bytes
    while position < size:
        data = _read(file, position, min(_READ_BYTES, size - position), source, expected)
        if len(data) >= HEADER_BYTES and len(data) < read_header(data).size_bytes <= size - position:
            data = _read(file, position, read_header(data).size_bytes, source, expected)
        step(len(data))
        # All of it nearly always, in one loop; what ends it is looked at again to tell a cut last batch from damage.
        batches = whole_headers(data, expected, source.end, epoch_at)
        within = 0
        if batches:
            _, at, last = batches[-1]
            expected, within = last.next_offset, at + last.size_bytes
        bad: BadBatchError | None = None
        while len(data) - within >= HEADER_BYTES:
            header = read_header(data, within)
            if within and header.size_bytes > len(data) - within:
                break  # it begins the next read
            fault = batch_fault(data, within, header, expected, size - position - within, epoch_at)
            if fault is not None:
                bad = BadBatchError(position + within, expected, fault, source.path)
                break
            batches.append((data, within, header))
            expected = header.next_offset
            within += header.size_bytes
        if batches and batches[0][2].base_offset < start:
            batches = [batch for batch in batches if batch[2].next_offset > start]
        yield batches
        if bad is not None:
            raise bad
        if not within:
            raise BadBatchError(position, expected, "the file ends inside a batch", source.path)
        position += within
    if expected != source.end:
        missing = f"the offsets from here to {source.end} are missing"
        raise BadBatchError(size, expected, missing, source.path)


def _read(file: File, position: int, length: int, source: Source, expected: Offset) -> bytes:
    try:
        return file.read(position, length)
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        raise with_cause(
            BadBatchError(position, expected, f"it cannot be read: {error}", source.path), error
        ) from error


def plain_records(batch: Batch, source: Source, max_decompressed_bytes: int) -> bytes:
    """The records of a batch as plain bytes. StorageError where they cannot be had."""
    data, at, header = batch
    if not header.attributes & CODEC_MASK:
        return data[at + HEADER_BYTES : at + header.size_bytes]
    try:
        return records_body(data, at, header, max_decompressed_bytes)
    except LogboomError as error:
        fault = StorageError(f"The batch at offset {header.base_offset} of {source.path} cannot be opened: {error}")
        raise with_cause(fault, error) from error


def is_compacted_by_key(header: BatchHeader) -> bool:
    """Whether the records of a batch are removed by their keys.

    Those of transactions are not: whether they were committed is not known here, and a record of an aborted one must
    not supersede any. Control batches have keys of their own.
    """
    return header.records_count > 0 and not header.attributes & NEVER_BY_KEY
