"""Writing what is staged, group by group, a group being what goes into one segment.

On the flusher's thread, under the log's lock. Where room or a file handle is lacking, the log is left as it was before
the group that did not get through; the groups before it stay written.
"""

from typing import Final

from logboom.base.errors import RetriableStorageError
from logboom.base.ports import File
from logboom.base.units import MIB
from logboom.storage.faults import retriable_error_for
from logboom.storage.snapshots import drop_snapshots, save_snapshot
from logboom.storage.staging import Staged
from logboom.storage.state import LogState

PART_BYTES: Final = MIB
"""How much of a long flush is synced at once. A larger sync takes proportionally longer, and then all of its clients
send again at once, while the disk has nothing to do."""


def write(state: LogState, staged: list[Staged], count: int) -> RetriableStorageError | None:
    """Write the first `count` of `staged`, each of which leaves the list once it is written.

    The error where something was lacking, None if all was written. Any other fault of the disk raises OSError.
    """
    while count:
        group = _first_group(staged, count)
        try:
            if group[0].roll:
                _roll(state, group[0])
            _write_group(state, group)
        except OSError as error:
            lack = retriable_error_for(error, state.active.path)
            if lack is None:
                raise
            return lack
        # The loop appends to the list meanwhile; the first ones are this thread's.
        del staged[: len(group)]
        count -= len(group)
    return None


def part_of(staged: list[Staged], count: int) -> int:
    """How many of the first `count` hold `PART_BYTES`; all of them where they hold less."""
    size_bytes = 0
    for at in range(count):
        size_bytes += staged[at].size_bytes
        if size_bytes >= PART_BYTES:
            return at + 1
    return count


def write_nowait(state: LogState, staged: list[Staged], max_bytes: int) -> File | None:
    """On the loop: write all of `staged` where that is one plain write; the handle that must then be synced.

    None: nothing was written, since there is more than `max_bytes`, or more to do: a new segment, an epoch to note,
    room to reserve, a recovery point, a checkpoint to open or to sync. Raises BlockingIOError where the disk would have
    to be waited for.
    """
    size_bytes = sum(one.size_bytes for one in staged)
    plain = all(not one.roll and one.producers is None for one in staged)
    if not 0 < size_bytes <= max_bytes or not plain or not state.notes_without_waiting:
        return None
    segment = state.active
    try:
        handle = segment.file.append_nowait([buffer for one in staged for buffer in one.buffers], size_bytes)
    except BlockingIOError:
        raise
    except OSError:
        return None  # the flush that follows writes to the same place, and its error is the one that counts
    if handle is None:
        return None
    segment.index.add([batch for one in staged for batch in one.batches])
    state.written_end = segment.file.known_end = staged[-1].next_offset
    staged.clear()
    return handle


def _first_group(staged: list[Staged], count: int) -> list[Staged]:
    group = staged[:1]
    for one in staged[1:count]:
        if one.roll:
            break
        group.append(one)
    return group


def _write_group(state: LogState, group: list[Staged]) -> None:
    segment = state.active
    size_bytes = sum(staged.size_bytes for staged in group)
    if not size_bytes:  # nothing but the end of a segment
        return
    try:
        buffers = [buffer for staged in group for buffer in staged.buffers]
        segment.file.append(buffers, size_bytes, state.config.preallocate_bytes)
    except OSError as error:
        # A full disk takes part of a write. What it took must go, or recovery would find it after the last batch.
        if retriable_error_for(error, segment.path) is not None and segment.file.is_open:
            segment.file.cut()
        raise
    for staged in group:
        segment.index.add(staged.batches)
    state.written_end = segment.file.known_end = group[-1].next_offset
    for staged in group:
        if staged.producers is not None and not staged.roll:
            _save_recovery_point(state, staged)


def _save_recovery_point(state: LogState, staged: Staged) -> None:
    """Save index and producers as of the end of `staged`, unsynced: a crash from here on recovers faster."""
    assert staged.producers is not None
    try:
        state.active.index.save()
        save_snapshot(state.disk, state.directory, staged.next_offset, staged.producers, bases=state.bases)
    except OSError as error:
        # The batches are written and must not be taken for lost because of a file that can be made again.
        if retriable_error_for(error, state.directory) is None:
            raise


def _roll(state: LogState, staged: Staged) -> None:
    """Close the active segment, synced to its end, and begin the next one with `staged`.

    The checkpoint that names the new segment comes last and is synced. Until then recovery takes its file, which is
    empty, for the remainder of an unfinished roll.
    """
    old, base = state.active, state.written_end
    new = state.create_segment(base)
    # Only the last segment may end in reserved room: after the last batch of any other, zeros would be damage. So its
    # length is set even where it looks right: a life before this one may have set it and failed to sync it. And it must
    # be durable before the next one has a batch, since recovery takes the base of a segment for a durable end.
    old.file.cut()
    old.file.sync()
    old.index.seal(base)
    if staged.producers is not None:
        # Durable: once the segments before are deleted, nothing else records the producers in them.
        save_snapshot(state.disk, state.directory, base, staged.producers, bases=(*state.bases, base), sync=True)
    state.set_segments((*state.segments, new))
    staged.roll = False
    staged.producers = None
    state.set_durable(sync=True)
    old.file.release()


def settle(state: LogState) -> None:
    """Leave everything so that the next open has nothing to do. Everything is written and synced by now. Raises
    OSError."""
    active = state.active
    active.file.trim()
    if active.index.is_behind:
        active.index.load()
    active.index.save()
    save_snapshot(state.disk, state.directory, state.log_end_offset, state.producers, bases=state.bases)
    drop_snapshots(state.disk, state.directory, state.log_end_offset)
    state.epochs.save()
    active.file.sync()
    state.write_checkpoint(sync=True)
