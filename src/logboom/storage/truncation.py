"""Cutting a log back at its end, in an order that a crash at any moment leaves either done or not begun.

The note of the durable end goes first: until the bytes are gone, recovery reads them as a tail and keeps them.
"""

from typing import TYPE_CHECKING

from logboom.base.ids import Offset
from logboom.storage.recovery import create_segment, rebuild_producers
from logboom.storage.segment import Segment
from logboom.storage.snapshots import drop_snapshots

if TYPE_CHECKING:
    from logboom.storage.log import PartitionLog


def truncate(log: "PartitionLog", offset: Offset, now_ms: int) -> None:
    """Remove every batch that reaches to or above `offset`, which is below the log end. Nothing may be staged."""
    kept = [segment for segment in log.segments if segment.base < offset] or [log.segments[0]]
    last = kept[-1]
    if last.base >= offset:
        position, end = 0, last.base
    elif last.end == offset:
        position, end = last.size_bytes, offset
    else:
        position, end = last.locate(offset, cached_only=False)
    # The batch that goes may be one whose first records were deleted before.
    log.log_start_offset = min(log.log_start_offset, end)
    if log.durable_end < end:  # what stays must be durable before it is noted so
        log.write_checkpoint(sync=False)
    log.durable_end = min(log.durable_end, end)
    log.unsettled = True
    log.note_durable_end(end, last, position)
    for segment in reversed(log.segments[len(kept) :]):
        # One by one: were an older one gone and a newer one there, recovery would take the newer for durable.
        segment.remove()
        log.disk.sync_dir(log.directory)
    log.set_segments(kept)
    last.shorten(position)
    log.set_end(end)
    if offset < end:
        _begin_at(log, offset)
    log.epochs.truncate_end(log.log_end_offset)
    log.save_epochs()
    drop_snapshots(log.disk, log.directory, log.log_end_offset)
    log.producers.clear()
    rebuild_producers(log, now_ms)
    log.unsettled = False
    log.write_checkpoint(sync=False)
    log.plan_from_disk(now_ms)


def _begin_at(log: "PartitionLog", offset: Offset) -> None:
    """The log, which is empty, begins again below its old start."""
    old, fresh = log.active, create_segment(log, offset)
    log.log_start_offset = offset
    log.note_durable_end(offset, fresh, 0)
    old.remove()
    log.set_segments([fresh])
    log.set_end(offset)


def detach_before(log: "PartitionLog", offset: Offset) -> tuple[Segment, ...]:
    """Move the log start to `offset`, at most the durable end; the segments below, which are the log's no more.

    The new start is made durable before any of them is removed, so that no crash brings a record back.
    """
    if offset > log.log_start_offset or log.unsettled:
        assert offset <= log.durable_end, "records above the durable end are not deleted"
        log.settle(max(offset, log.log_start_offset))
    gone = tuple(segment for segment in log.segments if segment.end is not None and segment.end <= offset)
    if gone:
        log.set_segments(log.segments[len(gone) :])
        # The first batch may begin below the new start.
        if log.epochs.truncate_start(log.segments[0].base):
            log.try_save_epochs()
    return gone
