"""Cutting a log back at its end, and moving its start: each in an order that a crash at any moment leaves either done
or not begun.

A process that dies in between leaves its changes in the page cache, where the next one finds them though a power
failure may still take them back. Both are therefore noted as unsettled in the checkpoint until they are durable.
"""

from dataclasses import dataclass
from typing import NamedTuple

from logboom.base.errors import StorageError
from logboom.base.ids import Offset
from logboom.base.ports import SyncFailedError
from logboom.storage.recovery import fill_producers
from logboom.storage.segment import BadBatchError, Segment
from logboom.storage.snapshots import drop_snapshots
from logboom.storage.state import LogState


def truncate(state: LogState, offset: Offset, now_ms: int) -> None:
    """Remove every batch that reaches to or above `offset`, which is below the log end. Nothing may be staged.

    The checkpoint is written first. A crash after it leaves bytes that recovery reads as a tail and keeps, as if the
    truncation had not begun; in any other order a crash would leave a durable end after the end of the file.

    Up to then a lack of room or handles changes nothing, and the truncation can be tried again (`state.is_cutting` is
    not set). From then on no room is needed: what would be written then is written later, where there is none.
    """
    cut = _cut_at(state, offset)
    if offset < cut.end:
        state.removals.finish()
    # Batches that will take the removed ones' offsets are not compacted.
    state.set_first_dirty(min(state.first_dirty_offset, cut.end, offset), sync=True)
    if state.durable_end < cut.end:  # what stays must be durable before it is noted so
        state.write_checkpoint(sync=False)
    _note(state, cut)
    state.is_cutting = True
    state.truncation_count += 1
    _shorten(state, cut)
    if offset < cut.end:
        # The log begins above `offset`, because its older records were deleted. A follower has to continue exactly
        # where its leader's log diverges (KIP-101), so the empty log begins again there.
        _begin_at(state, offset)
    state.epochs.truncate_end(state.log_end_offset)
    has_saved_epochs = state.epochs.try_save()
    # The sequences of removed batches must be accepted again. The table is filled as recovery does: from the snapshot
    # at the base of the segment that was cut, and its batches.
    drop_snapshots(state.disk, state.directory, state.log_end_offset)
    state.producers.clear()
    fill_producers(state, now_ms)
    state.unsettled = state.is_cutting = False
    if has_saved_epochs:  # else the one that was written first serves: it has the same end
        state.write_checkpoint(sync=False)


class _Cut(NamedTuple):
    """Where a log is cut."""

    kept: list[Segment]
    """The segments that stay, the last of them perhaps shorter."""
    position: int
    """Size of the last one in bytes after the cut."""
    end: Offset
    """The end of the log after the cut."""


def _cut_at(state: LogState, offset: Offset) -> _Cut:
    """Whole batches go: the cut is where the batch that holds `offset` begins, which may be below `offset`."""
    kept = [segment for segment in state.segments if segment.base < offset] or [state.segments[0]]
    last = kept[-1]
    if last.base >= offset:
        return _Cut(kept, 0, last.base)
    if last.end == offset:
        return _Cut(kept, last.size_bytes, offset)
    return _Cut(kept, *_place_of(last, offset))


def _note(state: LogState, cut: _Cut) -> None:
    """Note the new end in the checkpoint, unsettled."""
    was_unsettled, state.unsettled = state.unsettled, True
    # The batch that goes may be one whose first records were deleted before.
    start = min(state.log_start_offset, cut.end)
    try:
        state.note_shorter_end(cut.end, cut.kept[-1], cut.position, log_start=start)
    except OSError:
        state.unsettled = was_unsettled
        raise


def _shorten(state: LogState, cut: _Cut) -> None:
    """Remove the segments that go, and cut the last one that stays."""
    state.log_start_offset = min(state.log_start_offset, cut.end)
    state.durable_end = min(state.durable_end, cut.end)
    for segment in reversed(state.segments[len(cut.kept) :]):
        # One by one: were an older one gone and a newer one there, recovery would take the newer for durable.
        segment.remove()
        state.disk.sync_dir(state.directory)
    state.set_segments(cut.kept)
    # The index is cut with the log: once other bytes lie after the cut, an old entry might lead into a batch.
    cut.kept[-1].shorten(cut.position)
    state.set_end(cut.end)


def _place_of(segment: Segment, offset: Offset) -> tuple[int, Offset]:
    """Position and base offset of the batch that holds `offset`; StorageError where it is damaged."""
    try:
        return segment.reader.locate(offset, cached_only=False)
    except BadBatchError as bad:
        raise segment.walker.damage_error(bad.position, bad.offset, bad.reason) from bad


def restart_at(state: LogState, offset: Offset, now_ms: int, *, start_is_known: bool) -> None:
    """Remove every batch and every epoch; the log, empty, begins at `offset`. Nothing may be staged.

    `start_is_known`: whether what is below `offset` was deleted; else it may be lost.

    A crash in between leaves the first part of the log, or none of it, where it began before, or it is done.
    """
    state.removals.finish()
    start = state.segments[0].base
    if state.written_end > start:
        truncate(state, start, now_ms)
    # It may begin below where it began, and what is appended there is not compacted.
    state.set_first_dirty(min(state.first_dirty_offset, offset), sync=True)
    state.epochs.entries = ()
    state.epochs.save()
    state.unsettled, state.start_is_known = True, start_is_known
    if offset != state.active.base:
        _begin_at(state, offset)
    state.log_start_offset = offset
    drop_snapshots(state.disk, state.directory, Offset(-1))
    state.producers.clear()
    state.settle()


def _begin_at(state: LogState, offset: Offset) -> None:
    """The log, which is empty, begins again at another place."""
    old, fresh = state.active, state.create_segment(offset)
    state.note_shorter_end(offset, fresh, 0, log_start=offset)
    state.log_start_offset = offset
    old.remove()
    state.set_segments([fresh])
    state.set_end(offset)


@dataclass(frozen=True, slots=True)
class DetachedSegments:
    """Segments below the start of a log: nothing reads them any more, and their files are still there."""

    state: LogState
    segments: tuple[Segment, ...]

    def remove(self) -> None:
        """Remove the files, which takes long where they are large. On any thread, beside everything else.

        What a crash or an error leaves of them lies below the start, and goes when the log is opened next. Raises
        StorageError.
        """
        state = self.state
        try:
            state.removals.remove(self.segments)
            if self.segments:
                state.disk.sync_dir(state.directory)
        except SyncFailedError as error:
            raise state.fail(error) from error
        except OSError as error:
            raise StorageError(f"Old segments of {state.directory} cannot be removed: {error}.") from error


def detach_before(state: LogState, offset: Offset) -> DetachedSegments:
    """Move the log start to `offset`, at most the durable end; the segments below, which are the log's no more.

    The new start is durable before any of them is removed, so that no crash brings a record back.
    """
    moves = offset > state.log_start_offset or (offset == state.log_start_offset and not state.start_is_known)
    if moves or state.unsettled:
        assert offset <= state.durable_end, "records above the durable end are not deleted"
        state.settle(offset if moves else None)
    gone = tuple(segment for segment in state.segments if segment.end is not None and segment.end <= offset)
    if gone:
        state.set_segments(state.segments[len(gone) :])
        state.removals.add(gone)
        # The first batch may begin below the new start.
        if state.epochs.truncate_start(state.segments[0].base):
            state.epochs.try_save()
    return DetachedSegments(state, gone)
