"""Batches on their way from the loop to the disk: placed in the log, not yet written.

Knows what the loop has decided about them; not when they are written, nor to which file.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from logboom.base.ids import Epoch, Offset
from logboom.base.ports import Bytes
from logboom.records import BatchHeader, patch_batch
from logboom.storage.producers import ProducerTable, Undo

Batch = tuple[bytearray | memoryview, BatchHeader]
"""One whole batch and its head."""


@dataclass(slots=True)
class Staged:
    """Batches of one append on their way to the disk."""

    buffers: list[Bytes]
    size_bytes: int
    batches: list[tuple[Offset, int, int]]
    """Base offset, bytes and newest time of each."""
    next_offset: Offset
    undo: Undo
    roll: bool
    """Whether they are the first of a new segment."""
    producers: ProducerTable | None
    """Producers before these batches where they roll, behind them where a hint is due."""


def end_of_segment(end: Offset, producers: ProducerTable) -> Staged:
    """No batch, only the end of the segment that is written to."""
    return Staged([], 0, [], end, [], True, producers)


def place(
    buffer: bytearray | memoryview, headers: Sequence[tuple[int, BatchHeader]], base_offset: Offset, epoch: Epoch
) -> Staged:
    """Give the batches of one buffer, which lie one behind the other, their offsets and the leader epoch in place."""
    start, end = headers[0][0], headers[-1][0] + headers[-1][1].size_bytes
    offset, batches = base_offset, []
    for position, header in headers:
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
