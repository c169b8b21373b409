"""Batches on their way from the loop to the disk: placed in the log, not yet written.

Knows what the loop has decided about them; not when they are written, nor to which file.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from logboom.base.errors import InvalidRecordError
from logboom.base.ids import Epoch, Offset
from logboom.base.ports import Bytes
from logboom.records import BatchHeader, patch_batch
from logboom.storage.config import Appended
from logboom.storage.producers import ProducerTable, Undo

Batch = tuple[bytearray | memoryview, BatchHeader]
"""One whole batch and its header."""

Headers = Sequence[tuple[int, BatchHeader]]
"""Position and header of each batch in a buffer, one after the other without a gap."""


@dataclass(slots=True)
class Staged:
    """Batches of one append on their way to the disk."""

    buffers: list[Bytes]
    size_bytes: int
    batches: list[tuple[Offset, int, int]]
    """Base offset, size and newest time of each batch."""
    next_offset: Offset
    undo: Undo
    """What the batches displaced in the producer table."""
    roll: bool
    """Whether they are the first of a new segment."""
    producers: ProducerTable | None
    """The producer table before these batches where they roll, after them where a recovery point is due."""


def end_of_segment(end: Offset, producers: ProducerTable) -> Staged:
    """No batch, only the end of the segment that is written to."""
    return Staged([], 0, [], end, [], True, producers)


def place(buffer: bytearray | memoryview, headers: Headers, base_offset: Offset, epoch: Epoch | None = None) -> Staged:
    """Give the batches of one buffer their offsets and the leader epoch, in place; without an epoch, leave them as they
    are."""
    start, end = headers[0][0], headers[-1][0] + headers[-1][1].size_bytes
    offset, batches = base_offset, []
    for position, header in headers:
        if epoch is not None:
            patch_batch(buffer, position, offset, epoch)
        batches.append((offset, header.size_bytes, header.max_timestamp))
        offset = Offset(offset + header.last_offset_delta + 1)
    whole = end - start == len(buffer)
    return Staged([buffer if whole else memoryview(buffer)[start:end]], end - start, batches, offset, [], False, None)


def place_run(run: Sequence[Batch], base_offset: Offset, epoch: Epoch) -> Staged:
    """As `place`, for batches that each fill a buffer of their own."""
    offset, size_bytes, batches, buffers = base_offset, 0, [], []
    for buffer, header in run:
        patch_batch(buffer, 0, offset, epoch)
        length = len(buffer)
        buffers.append(buffer)
        batches.append((offset, length, header.max_timestamp))
        size_bytes += length
        offset = Offset(offset + header.last_offset_delta + 1)
    return Staged(list(buffers), size_bytes, batches, offset, [], False, None)


def first_copy(producers: ProducerTable, header: BatchHeader) -> Appended | None:
    """The offset of the first copy of a batch, if it is a duplicate. Raises the errors of `ProducerTable.check`."""
    if header.producer_id < 0:
        return None
    first = producers.check(header)
    if first is None:
        return None
    return Appended(first.base_offset, Offset(first.base_offset + first.last_offset_delta), True)


def admit(producers: ProducerTable, headers: Headers, base_offset: Offset, undo: Undo, now_ms: int) -> Appended | None:
    """Check and record the sequences of idempotent batches; where the first copy lies if one is a duplicate.

    What was recorded before an error or a duplicate stays in `undo`, for the caller to take back. Raises the errors of
    `ProducerTable.check`.
    """
    offset = base_offset
    for _, header in headers:
        if header.producer_id >= 0:
            first = first_copy(producers, header)
            if first is not None:
                return first
            producers.record(header, offset, now_ms, undo)
        offset = Offset(offset + header.last_offset_delta + 1)
    return None


def check_continues(headers: Headers, end: Offset, latest: Epoch) -> None:
    """InvalidRecordError unless a leader's batches follow each other from the log end offset `end` on, in leader epochs
    that do not fall below `latest`."""
    for _, header in headers:
        if header.base_offset != end:
            raise InvalidRecordError(f"A replicated batch is at offset {header.base_offset} where {end} must follow.")
        if header.leader_epoch < latest:
            raise InvalidRecordError(
                f"The replicated batch at offset {end} is of leader epoch {header.leader_epoch}, after one of {latest}."
            )
        end, latest = header.next_offset, Epoch(header.leader_epoch)
