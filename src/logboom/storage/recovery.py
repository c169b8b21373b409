"""Opening a log: find its segments, read what follows the durable-end checkpoint, and rebuild the state.

Bad bytes after the durable end are a torn tail and are truncated. Before it they are damage: reported, never truncated;
the offsets stay taken and answer with an error, and the log goes on after them.
"""

from collections.abc import Sequence
from typing import Final

from logboom.base.ids import NO_EPOCH, Offset
from logboom.base.ports import Disk, File
from logboom.base.units import KIB, MIB
from logboom.records import HEADER_BYTES, read_header
from logboom.storage import checkpoint as checkpoints
from logboom.storage import epochs as epoch_files
from logboom.storage import first_dirty
from logboom.storage.checkpoint import Checkpoint
from logboom.storage.compaction import swap
from logboom.storage.config import Damage, LogConfig, Notice
from logboom.storage.epochs import EpochHistory
from logboom.storage.faults import retriable_error_for
from logboom.storage.files import is_cleaned, is_known, is_temporary, offset_in, replacement_in
from logboom.storage.open_files import OpenFiles
from logboom.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, BadBatchError, Segment, last_entry, walk_checked
from logboom.storage.small_files import remove_auxiliary
from logboom.storage.snapshots import drop_snapshots, load_snapshot
from logboom.storage.state import LogState, Report

_ROOM_BYTES: Final = MIB
"""Room after the last batch that is kept: what is reserved for small writes at most. To cut more is cheaper than to
read it."""
_ZEROS: Final = bytes(64 * KIB)
_COPY_BYTES: Final = MIB
"""Bytes of a tail in memory at a time while it is written again."""


def recover(
    disk: Disk, directory: str, config: LogConfig, *, now_ms: int, report: Report, open_files: OpenFiles
) -> LogState:
    """The state of the log in `directory`, which is made if there is none. Raises OSError.

    Each step relies on those before it: the durable end decides where the tail begins, epochs are needed to judge the
    batches of the tail, and producers are read last, when the end of the log is known.
    """
    there = _names_in(disk, directory)
    state = LogState(disk, directory, config, report, open_files)
    known = checkpoints.load(disk, directory, report) if checkpoints.NAME in there else None
    names = _find_segments(state, known, there)
    durable, position = _durable_end(state, known)
    file = state.active.file
    # A search after damage, which the epochs may need, must not go into the tail: nothing vouches for its bytes yet.
    file.known_end = durable
    file_bytes, file.size_bytes = file.size_bytes, position
    _set_start(state, known)
    _report_gaps(state)
    state.unsettled = known is not None and known.unsettled
    _load_epochs(state, known, durable, names)
    changed = _read_tail(state, durable, file_bytes)
    # Snapshots above the end are of batches that were cut. New batches take those offsets, so they must go before.
    drop_snapshots(disk, directory, state.log_end_offset, names)
    fill_producers(state, now_ms, names)
    _load_first_dirty(state, names)
    # A log that was closed cleanly, or killed with nothing in progress, is opened without one write or sync.
    if changed or known is None or state.unsettled:
        _note(state, sync=changed)
    _remove_deleted(state)
    state.is_settled = not changed and not state.active.size_bytes and not state.active.file.has_room
    return state


def _names_in(disk: Disk, directory: str) -> list[str]:
    try:
        return disk.list(directory)
    except FileNotFoundError:
        disk.make_dir(directory)
        return []


def _load_first_dirty(state: LogState, names: Sequence[str]) -> None:
    """Restore the offset up to which the log is compacted. No compaction reaches into the active segment."""
    if first_dirty.NAME not in names:
        return
    state.first_dirty_offset = first_dirty.load(state.disk, state.directory, state.report) or Offset(0)
    if state.first_dirty_offset > state.active.base:
        # What will be appended up to there is not compacted, so it must not be found noted as if it were.
        state.set_first_dirty(state.active.base, sync=True)


def _note(state: LogState, *, sync: bool) -> None:
    """Write a checkpoint of what was found, so that the next recovery starts from it, if there is room: a full disk can
    be read."""
    try:
        # The tail's own epochs first: below the durable end a batch of an unknown epoch is damage.
        state.epochs.save()
        state.active.index.save()
        if state.unsettled:
            # A truncation may have got as far as the file's length and no further, so that is set and synced again.
            state.active.file.cut()
            state.active.file.sync()
            state.settle()
        else:
            state.write_checkpoint(sync=sync)
        state.close_checkpoint()
    except OSError as error:
        lack = retriable_error_for(error, state.directory)
        if lack is None:
            raise
        state.report(Notice(state.directory, f"what recovery found is not noted: {lack}"))


def _remove_deleted(state: LogState) -> None:
    """Remove what a deletion that was cut short has left below the log start. Any of its segments may be missing, so
    they are no part of the log to which a truncation could cut it back."""
    start = state.log_start_offset
    deleted = [segment for segment in state.segments if segment.end is not None and segment.end <= start]
    if not deleted or state.unsettled:  # there was no room to make that start certain: they may be needed again
        return
    state.set_segments(state.segments[len(deleted) :])
    for segment in deleted:
        segment.remove()


def segment_begun_ms(state: LogState, now_ms: int) -> int:
    """About when the active segment was begun, so that its age outlives restarts: its first batch may tell."""
    file = state.active.file
    if not file.size_bytes:
        return now_ms
    was_open = file.is_open
    first_ms = read_header(file.handle.read(0, HEADER_BYTES)).max_timestamp
    if not was_open:
        file.release()
    return first_ms if 0 < first_ms < now_ms else now_ms


def _find_segments(state: LogState, known: Checkpoint | None, names: Sequence[str]) -> Sequence[str]:
    """Fill the state's segments from the names in its directory; the names that are in it then."""
    names = _complete_swaps(state, names)
    bases = [base for name in names if (base := offset_in(name, LOG_SUFFIX)) is not None]
    for name in names:
        indexed = offset_in(name, INDEX_SUFFIX)
        if is_temporary(name) or (indexed is not None and indexed not in bases):
            remove_auxiliary(state.disk, f"{state.directory}/{name}")
        elif not is_known(name):
            state.report(Notice(f"{state.directory}/{name}", "is not a file of a log and is left alone"))
    segments = [state.new_segment(base) for base in bases]
    for segment in segments:
        segment.file.size_bytes = state.disk.size(segment.path)
    if known is None and any(segment.size_bytes for segment in segments):
        state.report(
            Notice(
                f"{state.directory}/{checkpoints.NAME}",
                "does not tell the durable end: the last segment is read as a tail",
            )
        )
    segments = _without_unfinished_rolls(segments, known)
    if not segments:
        # Without an epoch there never was a batch, and the first epoch makes the name durable.
        was_begun = epoch_files.NAME in names
        segments.append(state.create_segment(known.durable_end if known else Offset(0), sync=was_begun))
    state.set_segments(segments)
    return names


def _complete_swaps(state: LogState, names: Sequence[str]) -> Sequence[str]:
    """Complete what a compaction had committed, and remove what it had not; returns the names in the directory then."""
    disk, directory = state.disk, state.directory
    swaps = [replacement for name in names if (replacement := replacement_in(name)) is not None]
    bases = [base for name in names if (base := offset_in(name, LOG_SUFFIX)) is not None]
    if swaps:
        disk.sync_dir(directory)  # the process before may have ended before its own sync
    for replacement in swaps:
        swap.complete(disk, directory, replacement, [base for base in bases if replacement.covers(base)])
    if swaps:
        disk.sync_dir(directory)
    unfinished = [name for name in names if is_cleaned(name)]
    for name in unfinished:
        remove_auxiliary(disk, f"{directory}/{name}")
    return disk.list(directory) if swaps or unfinished else names


def _without_unfinished_rolls(segments: list[Segment], known: Checkpoint | None) -> list[Segment]:
    """Remove the empty files of segments that were made but never begun: a crash or a full disk came in between.

    The segment before such a file still ends in reserved room, and may even have been written on past its name. A
    segment that was begun is either noted in the checkpoint, which is synced before its first batch, or not empty.
    """
    begun = [segment for segment in segments if segment.size_bytes or (known and known.segment == segment.base)]
    kept = begun or segments[:1]  # the first batch of a log may end up after no segment at all
    for segment in segments:
        if segment not in kept:
            segment.remove()
    return kept


def _set_start(state: LogState, known: Checkpoint | None) -> None:
    """Offsets of a first segment that is missing stay in the log and answer with an error: no reader skips them.

    The checkpoint alone tells a missing segment from one that was deleted. It was synced before the first deletion.
    """
    first = state.segments[0]
    state.log_start_offset = known.log_start if known else first.base
    state.start_is_known = known.start_is_known if known else first.base == 0
    if not state.start_is_known:
        state.report_unknown_start("no checkpoint says whether what is below was deleted")
    if state.log_start_offset < first.base:
        state.report(
            Damage(state.directory, 0, state.log_start_offset, f"the segments before offset {first.base} are missing")
        )


def _report_gaps(state: LogState) -> None:
    """Offsets of a segment that is missing between two others stay in the log, too. Below the log start they are of
    segments that a deletion had not removed yet."""
    for segment in state.segments[:-1]:
        assert segment.end is not None
        if segment.end > state.log_start_offset and (gap := _gap_behind(state, segment, segment.end)) is not None:
            what = f"the records from there to offset {segment.end} are missing"
            state.report(Damage(segment.path, segment.size_bytes, gap, what))


def _gap_behind(state: LogState, segment: Segment, end: Offset) -> Offset | None:
    """The first offset that is missing between a complete segment and the next one, which begins at `end`. None where
    nothing is, or the index file does not end with the entry of the segment's end.

    A thousand logs are opened at once, so nothing but that entry is read, unless it lies behind the file's end.
    """
    last = last_entry(state.disk, segment.index.path)
    if last is None or last[1] < segment.size_bytes:
        return None
    offset, position, _ = last
    if position > segment.size_bytes:
        # The file became shorter; or the index is not that of this file, which only the log can tell.
        segment.index.load()
        offset = segment.index.entries.end or segment.base
    return offset if offset < end else None


def _durable_end(state: LogState, known: Checkpoint | None) -> tuple[Offset, int]:
    """The durable end and its position in the active segment; a new segment is begun where the file lost its end.

    A segment is begun only once the one before it is durable, so that its base is a durable end too.
    """
    active = state.active
    if known is None or known.segment < active.base:
        return active.base, 0
    if known.segment == active.base and known.position <= active.size_bytes:
        return known.durable_end, known.position
    if known.durable_end == active.base:
        return active.base, 0
    if known.segment == active.base:
        reason, position = f"the file ends before its durable end at byte {known.position}", active.size_bytes
    else:
        reason, position = f"the segment {known.segment} behind it is missing", active.size_bytes
    state.report(Damage(active.path, position, None, reason))
    state.set_segments((*state.segments, state.create_segment(known.durable_end)))
    return known.durable_end, 0


def _load_epochs(state: LogState, known: Checkpoint | None, durable: Offset, names: Sequence[str]) -> None:
    path = f"{state.directory}/{epoch_files.NAME}"
    latest = known.latest_epoch if known else NO_EPOCH
    history = epoch_files.load(state.disk, state.directory, state.report) if epoch_files.NAME in names else None
    if history is None or history.latest < latest:
        if history is not None:
            state.report(Notice(path, f"knows no leader epoch above {history.latest}, but there was {latest}"))
        history = _epochs_of_log(state)
        if history.entries:
            state.report(Notice(path, "was made again from the log"))
        if history.latest < latest:  # a leadership that wrote nothing
            history.begin(latest, durable)
    else:
        state.epochs.saved = EpochHistory(history.entries)
    # A leadership that began exactly there and wrote nothing stays: its epoch must never be given again.
    history.truncate_end(Offset(durable + 1))
    state.epochs.entries = history.entries


def _epochs_of_log(state: LogState) -> EpochHistory:
    history = EpochHistory()
    for segment in state.segments:
        for _, header in segment.walker.walk_past_damage(0, segment.base, segment.size_bytes):
            if header.leader_epoch > history.latest:
                history.begin(header.leader_epoch, header.base_offset)
    return history


def _read_tail(state: LogState, durable: Offset, file_bytes: int) -> bool:
    """Take every whole batch after the durable end and sync it, truncate the rest; returns whether there was any batch.

    The batches were written and not acknowledged as synced. They are kept, since a consumer of a stream that does not
    wait for syncs, or a producer with acks=1, may know them.
    """
    segment, file = state.active, state.active.file
    position, end = file.size_bytes, durable
    try:
        for at, header in walk_checked(file.handle, position, durable, file_bytes) if file_bytes > position else ():
            if header.leader_epoch < state.epochs.latest:
                # A batch that a truncation took away, and that its new neighbours did not overwrite to the end.
                raise BadBatchError(at, header.base_offset, "the batch is of an older leader epoch than the one before")
            state.epochs.begin(header.leader_epoch, header.base_offset)
            file.size_bytes = at + header.size_bytes  # the index learns of it from the log, once it is asked
            end = header.next_offset
    except BadBatchError as bad:
        _end_at(state, bad, file_bytes)
    state.set_end(end)
    segment.index.check_at_start()
    if end == durable:
        # Nothing to make durable: a thousand logs that were killed with nothing in progress cost not one sync.
        return False
    file.cut()  # room after them was perhaps in the same failed sync: see `_write_again`
    _write_again(state, position)
    file.sync()
    return True


def _end_at(state: LogState, bad: BadBatchError, file_bytes: int) -> None:
    """What follows the last whole batch is room that was reserved, zeros, or was being written at the end of the
    process or the machine: a torn tail."""
    file = state.active.file
    rest = file_bytes - bad.position
    if rest <= _ROOM_BYTES and _is_zero(file.handle, bad.position, file_bytes):
        file.keep_room(file_bytes)
        return
    if not _is_zero(file.handle, bad.position, bad.position + min(4096, rest)):
        state.report(Notice(file.path, f"a torn tail of {rest} bytes at byte {bad.position} (offset {bad.offset}) "
                                       f"was cut: {bad.reason}"))  # fmt: skip
    file.cut()


def _is_zero(handle: File, position: int, end: int) -> bool:
    """Whether all bytes are zero. Behind zeros a later sector of a torn write may have got onto the disk."""
    while position < end:
        data = handle.read(position, min(len(_ZEROS), end - position))
        if not data or not _ZEROS.startswith(data):
            return False
        position += len(data)
    return True


def _write_again(state: LogState, position: int) -> None:
    """Write the tail once more, the same bytes over themselves, so that the sync that follows speaks of them.

    A sync of them may have failed in the life before. The system may then hold them in memory as if they were on the
    disk, give them to every reader, and have nothing to do at the next sync: after an error, Linux marks pages clean.
    """
    file = state.active.file
    try:
        while (length := min(_COPY_BYTES, file.size_bytes - position)) > 0:
            file.handle.write(position, [file.handle.read(position, length)])
            position += length
    except OSError as error:
        lack = retriable_error_for(error, file.path)
        if lack is None:
            raise
        state.report(Notice(file.path, f"what recovery found is not written again: {lack}"))


def fill_producers(state: LogState, now_ms: int, names: Sequence[str] | None = None) -> None:
    """Fill the empty producer table as of the log end: from the newest snapshot, and the batches written after it.

    A producer found in the log counts as heard of now; how long it has been silent is not known.
    """
    start = load_snapshot(state.disk, state.directory, state.producers, state.log_end_offset, state.report, names)
    if start is None:
        start = state.segments[0].base
    for segment in state.segments:
        end = state.log_end_offset if segment.end is None else segment.end
        if end <= start:
            continue
        for _, header in segment.index.walk_at_start(start):
            if header.base_offset >= start and header.producer_id >= 0:
                state.producers.record(header, header.base_offset, now_ms)
    state.producers.expire(now_ms)
