"""Opening a log: find its segments, read what lies past the durable-end checkpoint, and know everything again.

Bad bytes past the durable end are a torn tail and are cut. Below it they are damage: reported, never cut; the offsets
stay taken and answer with an error, and the log goes on behind them.
"""

from typing import TYPE_CHECKING, Final

from logboom.base.ids import NO_EPOCH, Offset
from logboom.base.units import MIB
from logboom.records import HEADER_BYTES, read_header
from logboom.storage import checkpoint as checkpoints
from logboom.storage import epochs as epoch_files
from logboom.storage.checkpoint import Checkpoint
from logboom.storage.config import Damage, Notice
from logboom.storage.epochs import EpochHistory
from logboom.storage.faults import retriable_error_for
from logboom.storage.files import is_known, is_temporary, offset_in
from logboom.storage.scan import BadBatchError, walk_checked
from logboom.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment
from logboom.storage.small_files import remove_auxiliary
from logboom.storage.snapshots import drop_snapshots, load_snapshot

if TYPE_CHECKING:
    from logboom.storage.log import PartitionLog

_AGAIN_BYTES: Final = MIB
"""So much of a tail is in memory at a time while it is written again."""


def recover(log: "PartitionLog", now_ms: int) -> None:
    """Fill a new PartitionLog from its directory."""
    known = checkpoints.load(log.disk, log.directory, log.report)
    _find_segments(log, known)
    durable, position = _durable_end(log, known)
    log.active.known_end = durable
    file_bytes, log.active.size_bytes = log.active.size_bytes, position
    _set_start(log, known)
    log.unsettled = known is not None and known.unsettled
    _load_epochs(log, known, durable)
    changed = _read_tail(log, durable, file_bytes)
    _load_producers(log, now_ms)
    if changed or known is None or log.unsettled:
        _note(log, sync=changed)
    log.plan_from_disk(_begun_ms(log, now_ms))


def _note(log: "PartitionLog", *, sync: bool) -> None:
    """Make what was found the state from which the next recovery starts, if there is room: a full disk can be read."""
    try:
        # The tail's own epochs first: below the durable end a batch of an unknown epoch is damage.
        log.save_epochs()
        log.active.save_index()
        if log.unsettled:
            log.active.cut()  # once more: a truncation may have got as far as this, and no further
            log.active.sync()
            log.settle()
        else:
            log.write_checkpoint(sync=sync)
        log.close_checkpoint()
    except OSError as error:
        lack = retriable_error_for(error, log.directory)
        if lack is None:
            raise
        log.report(Notice(log.directory, f"what recovery found is not noted: {lack}"))


def _begun_ms(log: "PartitionLog", now_ms: int) -> int:
    """About when the active segment was begun, so that its age outlives restarts: its first batch may tell."""
    if not log.active.size_bytes:
        return now_ms
    was_open = log.active.is_open
    told = read_header(log.active.file.read(0, HEADER_BYTES)).max_timestamp
    if not was_open:
        log.active.release()
    return told if 0 < told < now_ms else now_ms


def _find_segments(log: "PartitionLog", known: Checkpoint | None) -> None:
    names = log.disk.list(log.directory)
    bases = [base for name in names if (base := offset_in(name, LOG_SUFFIX)) is not None]
    for name in names:
        indexed = offset_in(name, INDEX_SUFFIX)
        if is_temporary(name) or (indexed is not None and indexed not in bases):
            remove_auxiliary(log.disk, f"{log.directory}/{name}")
        elif not is_known(name):
            log.report(Notice(f"{log.directory}/{name}", "is no file of a log and is left alone"))
    segments = [log.new_segment(base) for base in bases]
    for segment in segments:
        segment.size_bytes = log.disk.size(segment.path)
    if known is None and any(segment.size_bytes for segment in segments):
        log.report(
            Notice(
                f"{log.directory}/{checkpoints.NAME}",
                "does not tell the durable end: the last segment is read as a tail",
            )
        )
    segments = _without_unfinished_rolls(segments, known)
    if not segments:
        segments.append(create_segment(log, known.durable_end if known else Offset(0)))
    log.set_segments(segments)


def _without_unfinished_rolls(segments: list[Segment], known: Checkpoint | None) -> list[Segment]:
    """Remove the empty files of segments that were made but never begun: a crash or a full disk came in between.

    The segment before such a file still ends in reserved room, and may even have been written on past its name. A
    segment that was begun is either noted in the checkpoint, which is synced before its first batch, or not empty.
    """
    begun = [segment for segment in segments if segment.size_bytes or (known and known.segment == segment.base)]
    kept = begun or segments[:1]  # the first batch of a log may end up behind no segment at all
    for segment in segments:
        if segment not in kept:
            segment.remove()
    return kept


def _set_start(log: "PartitionLog", known: Checkpoint | None) -> None:
    """Offsets of a first segment that is missing stay in the log and answer with an error: no reader skips them."""
    first = log.segments[0]
    log.log_start_offset = known.log_start if known else first.base
    if log.log_start_offset < first.base:
        log.report(
            Damage(log.directory, 0, log.log_start_offset, f"the segments before offset {first.base} are missing")
        )


def create_segment(log: "PartitionLog", base: Offset) -> Segment:
    """A new empty segment whose name survives a power failure."""
    segment = log.new_segment(base)
    segment.create()
    log.disk.sync_dir(log.directory)
    return segment


def _durable_end(log: "PartitionLog", known: Checkpoint | None) -> tuple[Offset, int]:
    """The durable end and its position in the active segment; a new segment is begun where the file lost its end.

    A segment is begun only once the one before it is durable, so that its base is a durable end too.
    """
    active = log.active
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
    log.report(Damage(active.path, position, None, reason))
    log.set_segments((*log.segments, create_segment(log, known.durable_end)))
    return known.durable_end, 0


def _load_epochs(log: "PartitionLog", known: Checkpoint | None, durable: Offset) -> None:
    path = f"{log.directory}/{epoch_files.NAME}"
    latest = known.latest_epoch if known else NO_EPOCH
    history = epoch_files.load(log.disk, log.directory, log.report)
    if history is None or history.latest < latest:
        if history is not None:
            log.report(Notice(path, f"knows no leader epoch above {history.latest}, but there was {latest}"))
        history = _epochs_of_log(log)
        if history.entries:
            log.report(Notice(path, "was made again from the log"))
        if history.latest < latest:  # a leadership that wrote nothing
            history.begin(latest, durable)
    else:
        log.mark_epochs_saved(history)
    # A leadership that began exactly there and wrote nothing stays: its epoch must never be given again.
    history.truncate_end(Offset(durable + 1))
    log.epochs.entries = history.entries


def _epochs_of_log(log: "PartitionLog") -> EpochHistory:
    history = EpochHistory()
    for segment in log.segments:
        for _, header in segment.walk_past_damage(0, segment.base, segment.size_bytes):
            if header.leader_epoch > history.latest:
                history.begin(header.leader_epoch, header.base_offset)
    return history


def _read_tail(log: "PartitionLog", durable: Offset, file_bytes: int) -> bool:
    """Take every whole batch past the durable end, cut the rest, sync what was taken; whether there was any of it."""
    active = log.active
    position = active.size_bytes
    if file_bytes == position:
        log.set_end(durable)
        return False
    end = durable
    try:
        for at, header in walk_checked(active.file, position, durable, file_bytes):
            if header.leader_epoch < log.epochs.latest:
                raise BadBatchError(at, header.base_offset, "the batch is of an older leader epoch than the one before")
            log.epochs.begin(header.leader_epoch, header.base_offset)
            active.wrote([(header.base_offset, header.size_bytes, header.max_timestamp)])
            end = header.next_offset
    except BadBatchError as bad:
        if any(active.file.read(bad.position, min(4096, file_bytes - bad.position))):
            log.report(Notice(active.path, f"a torn tail of {file_bytes - bad.position} bytes at byte {bad.position} "
                                           f"(offset {bad.offset}) was cut: {bad.reason}"))  # fmt: skip
    log.set_end(end)
    active.cut()
    _write_again(log, position)
    active.sync()
    active.save_index_of_tail()
    return True


def _write_again(log: "PartitionLog", position: int) -> None:
    """Write the tail once more, the same bytes over themselves, so that the sync that follows speaks of them.

    In the life before a sync of them may have failed. The system may then hold them in memory as if they were on the
    disk, give them to whoever reads, and have nothing to do at the next sync.
    """
    active = log.active
    try:
        while (length := min(_AGAIN_BYTES, active.size_bytes - position)) > 0:
            active.file.write(position, [active.file.read(position, length)])
            position += length
    except OSError as error:
        lack = retriable_error_for(error, active.path)
        if lack is None:
            raise
        log.report(Notice(active.path, f"what recovery found is not written again: {lack}"))


def _load_producers(log: "PartitionLog", now_ms: int) -> None:
    """The newest snapshot, and what was written after it. Whoever is in the log counts as heard of now."""
    drop_snapshots(log.disk, log.directory, log.log_end_offset)
    rebuild_producers(log, now_ms)


def rebuild_producers(log: "PartitionLog", now_ms: int) -> None:
    """Fill the producer table as of the log end."""
    start = load_snapshot(log.disk, log.directory, log.producers, log.log_end_offset, log.report)
    if start is None:
        start = log.segments[0].base
    for segment in log.segments:
        end = log.log_end_offset if segment.end is None else segment.end
        if end <= start:
            continue
        base, position = segment.floor(start)
        for _, header in segment.walk_past_damage(position, base, segment.size_bytes):
            if header.base_offset >= start and header.producer_id >= 0:
                log.producers.record(header, header.base_offset, now_ms)
    log.producers.expire(now_ms)
