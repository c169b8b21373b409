"""The state of one log: its segments, ends, epochs and producers, and what the disk knows of them.

`recovery.recover` makes a `LogState` from a directory; `writing`, `truncation` and `PartitionLog` change it. It has no
lock: `PartitionLog` says which thread may change what.
"""

import itertools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from logboom.base.errors import StorageError
from logboom.base.ids import Offset
from logboom.base.ports import Disk
from logboom.storage import first_dirty
from logboom.storage.checkpoint import Checkpoint, CheckpointFile
from logboom.storage.config import Damage, LogConfig, Notice, UnknownStart
from logboom.storage.epochs import EpochFile
from logboom.storage.faults import retriable_error_for
from logboom.storage.open_files import OpenFiles
from logboom.storage.producers import ProducerTable
from logboom.storage.removals import Removals
from logboom.storage.segment import LogDirectory, Segment

Report = Callable[[Damage | Notice], None]


class WriteNotifications(NamedTuple):
    """What to call once something was written, on either side."""

    on_loop: Callable[[], object]
    from_thread: Callable[[], object]
    """Wakes the loop, by a system call."""


class LogState:
    """The state of one log. `log_start_offset` <= `durable_end` <= `written_end` <= `log_end_offset`."""

    __slots__ = (
        "_checkpoint_file",
        "_checkpoint_synced_bytes",
        "_checkpoint_synced_segment",
        "_layout",
        "config",
        "disk",
        "durable_end",
        "epochs",
        "failure",
        "first_dirty_offset",
        "is_cutting",
        "is_settled",
        "layout_changes",
        "log_end_offset",
        "log_start_offset",
        "on_written",
        "open_files",
        "place",
        "producers",
        "removals",
        "report",
        "start_is_known",
        "truncation_count",
        "unsettled",
        "written_end",
    )

    def __init__(self, disk: Disk, directory: str, config: LogConfig, report: Report, open_files: OpenFiles) -> None:
        self.disk = disk
        self.place = LogDirectory(disk, directory)
        self.config = config
        self.report = report
        self.open_files = open_files
        self.epochs = EpochFile(disk, directory)
        self.producers = ProducerTable(config.producer_expiry_ms, config.max_producers)
        # Segments and their bases, one tuple so that a reader never sees one without the other.
        self._layout: tuple[tuple[Segment, ...], tuple[Offset, ...]] = ((), ())
        self.removals = Removals()
        self.layout_changes = 0
        """How often its segments were replaced: a reader that failed beside that tries again."""
        self.log_start_offset = Offset(0)
        self.start_is_known = True
        """Whether what is below the log start is known to have been deleted; else the disk may have lost it."""
        self.log_end_offset = Offset(0)
        """The offset of the next record, counting all that is staged."""
        self.written_end = Offset(0)
        """Below it everything is in the segment files, as far as this process can tell."""
        self.durable_end = Offset(0)
        """Below it everything survives a power failure."""
        self.first_dirty_offset = Offset(0)
        """Below it key compaction has been: see `first_dirty`."""
        self.truncation_count = 0
        """How often its end was cut off since it was opened."""
        self.is_cutting = False
        """Whether its end is being cut off, and it is noted already that it is."""
        self.is_settled = False
        """Whether its last segment was found empty and nothing was to be changed since: `close` has nothing to do."""
        self.unsettled = False
        """Whether checkpoints are marked so: see `checkpoint`."""
        self.on_written: WriteNotifications | None = None
        """Called where something was written that is going to be synced, before the sync, on the thread that writes."""
        self.failure: str | None = None
        """Why nothing is written any more, as a sentence; None if the log accepts writes."""
        self._checkpoint_file = CheckpointFile(disk, directory, open_files)
        self._checkpoint_synced_bytes = 0
        """Size of the active segment in the last checkpoint that was synced."""
        self._checkpoint_synced_segment: Offset | None = None
        """The segment that it names."""

    @property
    def directory(self) -> str:
        """Its path, for what only the flusher's thread does; `place` for what other threads do beside a deletion."""
        return self.place.path

    # --- segments -------------------------------------------------------------------------------------------------

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, oldest first; replaced whole when any of them changes."""
        return self._layout[0]

    @property
    def bases(self) -> tuple[Offset, ...]:
        """First offset of each segment."""
        return self._layout[1]

    @property
    def active(self) -> Segment:
        """The last segment, which is written to."""
        return self._layout[0][-1]

    def set_segments(self, segments: Sequence[Segment]) -> None:
        """Replace the segments, oldest first; each ends where the next begins."""
        for segment, follower in itertools.pairwise(segments):
            segment.file.end = follower.base
        segments[-1].file.end = None
        self._layout = tuple(segments), tuple(segment.base for segment in segments)
        self.layout_changes += 1

    def segment_of(self, offset: Offset) -> Segment:
        """The segment whose offsets hold `offset`."""
        segments, bases = self._layout
        return segments[max(bisect_right(bases, offset) - 1, 0)]

    def new_segment(self, base: Offset) -> Segment:
        """A segment object; its files are neither made nor opened."""
        interval_bytes = self.config.index_interval_bytes
        return Segment(self.disk, self.place, base, interval_bytes, self.epochs.at, self.report, self.open_files)

    def create_segment(self, base: Offset, *, sync: bool = True) -> Segment:
        """A new empty segment, which is not yet one of the log's; with `sync` its name survives a power failure."""
        segment = self.new_segment(base)
        segment.create()
        if sync:
            self.disk.sync_dir(self.directory)
        return segment

    # --- ends and the checkpoint ----------------------------------------------------------------------------------

    def set_end(self, end: Offset) -> None:
        """Everything up to `end` is durable and nothing follows it."""
        self.log_end_offset = self.written_end = self.durable_end = self.active.file.known_end = end

    @property
    def checkpoint_due(self) -> bool:
        """Whether the next checkpoint is to be synced.

        Without a sync now and then, a power failure would leave a checkpoint from before the last writeback: up to half
        a minute of writes at full speed, all of which recovery would have to check and write again.
        """
        return self.active.size_bytes - self._checkpoint_synced_bytes >= self.config.checkpoint_bytes

    @property
    def checkpoint_names_active(self) -> bool:
        """Whether no power failure leaves a checkpoint that names another segment than the one that is written to."""
        return self._checkpoint_synced_segment == self.active.base

    def set_durable(self, *, sync: bool) -> None:
        """All that is written was synced: note it in the checkpoint.

        Where there is no room for the note, the old one stays. It costs the next recovery a longer tail, nothing else.
        """
        self.durable_end = self.written_end
        try:
            self.write_checkpoint(sync=sync)
        except OSError as error:
            if retriable_error_for(error, self.directory) is None:
                raise

    @property
    def notes_without_waiting(self) -> bool:
        """Whether the event loop may write rounds: `set_durable_nowait` can be expected to note them."""
        return self._checkpoint_file.takes_nowait and self.epochs.are_saved and not self.checkpoint_due

    def set_durable_nowait(self) -> None:
        """As `set_durable`, on the event loop: where the note would wait for the disk, the next flush writes it."""
        self.durable_end = self.written_end
        # An append may have begun an epoch while the sync was under way: its file is written, and synced, first.
        if not self.epochs.are_saved:
            return
        try:
            self._checkpoint_file.write_nowait(self._checkpoint(self.log_start_offset, self.start_is_known))
        except OSError as error:
            if retriable_error_for(error, self.directory) is None:
                raise

    def write_checkpoint(self, *, sync: bool, log_start: Offset | None = None) -> None:
        """Note where the log is durable to: the end of the active segment, which is synced where it was not."""
        active = self.active
        self.epochs.save()
        if self.durable_end < self.written_end:
            active.file.sync()
            self.durable_end = self.written_end
        start, is_known = self.log_start_offset, self.start_is_known
        if log_start is not None:
            start, is_known = log_start, True
        self._checkpoint_file.write(self._checkpoint(start, is_known), sync=sync)
        if sync:
            self._checkpoint_synced_bytes = active.size_bytes
            self._checkpoint_synced_segment = active.base

    def _checkpoint(self, log_start: Offset, start_is_known: bool) -> Checkpoint:
        """What is durable now, all that is written."""
        active = self.active
        # An epoch that begins after the durable end may be lost with the records before it: recovery must not miss it.
        epoch = self.epochs.saved.before(Offset(self.durable_end + 1))
        end, position = self.durable_end, active.size_bytes
        return Checkpoint(end, active.base, position, log_start, epoch, self.unsettled, start_is_known)

    def note_shorter_end(self, end: Offset, segment: Segment, position: int, *, log_start: Offset) -> None:
        """Durably note an end that the segments are about to be cut to, and the log start that goes with it."""
        epoch = self.epochs.before(end)
        shorter = Checkpoint(end, segment.base, position, log_start, epoch, self.unsettled, self.start_is_known)
        self._checkpoint_file.write(shorter, sync=True)
        self._checkpoint_synced_segment = segment.base

    def settle(self, log_start: Offset | None = None) -> None:
        """Make the checkpoint, with another log start if given, and all file names durable.

        Until that is done the checkpoint says so itself: the next process may find it in the page cache only. What is
        below a log start that is given was deleted.
        """
        self.unsettled = True
        self.write_checkpoint(sync=True, log_start=log_start)
        self.disk.sync_dir(self.directory)
        if log_start is not None:
            self.log_start_offset, self.start_is_known = log_start, True
        self.unsettled = False
        self.write_checkpoint(sync=False)

    def close_checkpoint(self) -> None:
        """Close its file until it is written again."""
        self._checkpoint_file.close()

    def report_unknown_start(self, why: str) -> None:
        """Report that the log may have lost its beginning."""
        self.report(UnknownStart(self.directory, f"begins at offset {self.log_start_offset}, and {why}"))

    # --- compaction -----------------------------------------------------------------------------------------------

    def set_first_dirty(self, offset: Offset, *, sync: bool) -> None:
        """Note up to where the log is compacted. Raises OSError."""
        if offset != self.first_dirty_offset:
            first_dirty.save(self.disk, self.directory, offset, sync=sync)
            self.first_dirty_offset = offset

    # --- failures -------------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Before anything is changed: StorageError once the log has failed, or is closed."""
        if self.failure is not None:
            raise StorageError(self.failure)
        self.is_settled = False

    def error_for(self, error: OSError) -> StorageError:
        """The error to raise for one of the disk: the log goes on after a lack of room or handles, and fails else."""
        return retriable_error_for(error, self.directory) or self.fail(error)

    def fail(self, error: OSError) -> StorageError:
        """End all writing; the error to raise."""
        self.failure = f"The log {self.directory} is closed for writing: {error}."
        return StorageError(self.failure)
