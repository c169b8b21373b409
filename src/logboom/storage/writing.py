"""Writing what is staged, group by group, a group being what goes into one segment.

On the flusher's thread, under the log's lock. Where room or a file handle is lacking, the log is left as it was before
the group that did not get through; the groups before it stay written.
"""

from typing import TYPE_CHECKING

from logboom.base.errors import RetriableStorageError
from logboom.storage.faults import retriable_error_for
from logboom.storage.snapshots import save_snapshot

if TYPE_CHECKING:
    from logboom.storage.log import PartitionLog
    from logboom.storage.staging import Staged


def write_staged(log: "PartitionLog", count: int) -> RetriableStorageError | None:
    """Write the first `count` appends; each group leaves the list once written. What was lacking, if anything was."""
    while count:
        group = _first_group(log.staged, count)
        try:
            if group[0].roll:
                _roll(log, group[0])
            _write_group(log, group)
        except OSError as error:
            lack = retriable_error_for(error, log.active.path)
            if lack is None:
                raise
            return lack
        del log.staged[: len(group)]
        count -= len(group)
    return None


def _first_group(staged: "list[Staged]", count: int) -> "list[Staged]":
    group = staged[:1]
    for one in staged[1:count]:
        if one.roll:
            break
        group.append(one)
    return group


def _write_group(log: "PartitionLog", group: "list[Staged]") -> None:
    segment = log.active
    size_bytes = sum(staged.size_bytes for staged in group)
    if not size_bytes:  # nothing but the end of a segment
        return
    try:
        buffers = [buffer for staged in group for buffer in staged.buffers]
        segment.append(buffers, size_bytes, log.config.preallocate_bytes)
    except OSError as error:
        if retriable_error_for(error, segment.path) is not None and segment.is_open:
            segment.cut()
        raise
    for staged in group:
        segment.wrote(staged.batches)
    log.written_end = segment.known_end = group[-1].next_offset
    for staged in group:
        if staged.producers is not None and not staged.roll:
            _save_recovery_point(log, staged)


def _save_recovery_point(log: "PartitionLog", staged: "Staged") -> None:
    assert staged.producers is not None
    try:
        log.active.save_index()
        save_snapshot(log.disk, log.directory, staged.next_offset, staged.producers, bases=log.bases)
    except OSError as error:
        # It only shortens recovery; the batches are written and must not be taken for lost.
        if retriable_error_for(error, log.directory) is None:
            raise


def _roll(log: "PartitionLog", staged: "Staged") -> None:
    """Close the active segment, durable to its end, and begin the next one with `staged`."""
    old, base = log.active, log.written_end
    new = log.new_segment(base)
    new.create()
    log.disk.sync_dir(log.directory)
    old.trim()
    old.sync()
    old.index.seal(base)
    old.save_index()
    if staged.producers is not None:
        # Durable: once the segments before are deleted, nothing else tells of the producers in them.
        save_snapshot(log.disk, log.directory, base, staged.producers, bases=(*log.bases, base), sync=True)
    log.set_segments((*log.segments, new))
    staged.roll = False
    staged.producers = None
    log.set_durable(sync=True)
    old.release()
