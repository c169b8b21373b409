"""The log of one partition: what is staged, what is written, what is durable, and reading it back.

Threads: `append`, `roll`, `abandon_staged`, `truncate`, `start_epoch` on the loop; `flush` on the flusher; reads
anywhere. The loop decides where each batch goes, the segment it will lie in included; the flusher only does as told,
so the two share a list that one appends to and the other takes the head of. Readers see tuples that are replaced whole.
"""

import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Final, TypeVar

from logboom.base.errors import (
    LogboomError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    StorageError,
)
from logboom.base.ids import Epoch, Offset
from logboom.base.ports import Disk, SyncFailedError
from logboom.base.units import MIB
from logboom.records import BatchHeader
from logboom.storage import epochs as epoch_files
from logboom.storage import recovery, search, truncation, writing
from logboom.storage.checkpoint import Checkpoint, CheckpointFile
from logboom.storage.config import Appended, Damage, LogConfig, Notice, TimedOffset
from logboom.storage.epochs import EpochHistory
from logboom.storage.faults import retriable_error_for
from logboom.storage.open_files import OpenFiles
from logboom.storage.producers import ProducerTable, Undo
from logboom.storage.retention import Retention, expired_to_the_end, retained_from
from logboom.storage.scan import NotCachedError
from logboom.storage.segment import Segment
from logboom.storage.snapshots import drop_snapshots, save_snapshot
from logboom.storage.staging import Batch, Staged, end_of_segment, place, place_run

Report = Callable[[Damage | Notice], None]
Result = TypeVar("Result")

_MAX_SEGMENT_OFFSETS: Final = 2**31 - 1
_FIRST_RECOVERY_POINT_BYTES: Final = MIB
_MAX_PLACES: Final = 256
_MAX_OLD_OPEN: Final = 8


class PartitionLog:
    """Made by `open`; see the module's docstring for who may call what."""

    def __init__(self, disk: Disk, directory: str, config: LogConfig, report: Report, open_files: OpenFiles) -> None:
        self.open_files = open_files
        self.disk = disk
        self.directory = directory
        self.config = config
        self.report = report
        self.epochs = EpochHistory()
        self.producers = ProducerTable(config.producer_expiry_ms, config.max_producers)
        # Segments and their bases, one tuple so that a reader never sees one without the other.
        self._layout: tuple[tuple[Segment, ...], tuple[Offset, ...]] = ((), ())
        self.log_start_offset = Offset(0)
        self.log_end_offset = Offset(0)
        self.written_end = Offset(0)
        self.durable_end = Offset(0)
        self.unsettled = False
        """Whether the checkpoint is written as such: see there."""
        self._checkpoint_file = CheckpointFile(disk, directory, open_files)
        self.staged: list[Staged] = []
        self._io = Lock()
        self._failure: str | None = None
        self._epochs_saved: tuple[tuple[Epoch, Offset], ...] = ()
        self._places: dict[Offset, tuple[Segment, int]] = {}
        self._old_open: deque[Segment] = deque()
        self._planned_bytes = 0
        self._planned_base = Offset(0)
        self._planned_since_ms: int | None = None
        self._recovery_point_due_bytes = self._next_recovery_point(0)

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        report: Report,
        open_files: OpenFiles | None = None,
    ) -> "PartitionLog":
        """The log in `directory`, made if there is none, recovered if it was not closed.

        What was found wrong or put right goes to `report`, from here and later from reads in any thread.
        StorageError where the disk itself fails; on a full one, which can be read, a log that is there is opened.
        """
        try:
            disk.make_dir(directory)
            log = cls(disk, directory, config, report, OpenFiles() if open_files is None else open_files)
            recovery.recover(log, now_ms)
        except OSError as error:
            raise retriable_error_for(error, directory) or StorageError(
                f"The log {directory} cannot be opened: {error}."
            ) from error
        return log

    # --- what it is ---------------------------------------------------------------------------------------------

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, oldest first."""
        return self._layout[0]

    @property
    def bases(self) -> tuple[Offset, ...]:
        """First offset of each segment."""
        return self._layout[1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches on disk."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def failed(self) -> bool:
        """Whether a write or sync failed in a way that ends all writing."""
        return self._failure is not None

    def set_segments(self, segments: Sequence[Segment]) -> None:
        """Replace the segments, oldest first; each ends where the next begins."""
        for segment, follower in itertools.pairwise(segments):
            segment.end = follower.base
        segments[-1].end = None
        self._layout = tuple(segments), tuple(segment.base for segment in segments)

    def plan_from_disk(self, since_ms: int | None) -> None:
        """Decide again from what is on disk when the next segment begins."""
        self._planned_bytes = self.active.size_bytes
        self._planned_base = self.active.base
        self._planned_since_ms = since_ms if self._planned_bytes else None
        self._recovery_point_due_bytes = max(
            self._planned_bytes, self._next_recovery_point(0)
        )  # the last note may lie far behind

    # --- the loop's side ----------------------------------------------------------------------------------------

    def append(
        self,
        buffer: bytearray | memoryview,
        headers: Sequence[tuple[int, BatchHeader]],
        *,
        leader_epoch: Epoch,
        now_ms: int,
    ) -> Appended:
        """Give the batches offsets and the leader epoch in place and stage them; the buffer is the log's from here on.

        A duplicate of a remembered batch is not staged and answers with the offsets of the first. Raises the errors
        of `ProducerTable.check`, RecordListTooLargeError, and StorageError once the log has failed.
        """
        self._check_failure()
        size_bytes = headers[-1][0] + headers[-1][1].size_bytes - headers[0][0]
        if size_bytes > self.config.segment_bytes:
            raise RecordListTooLargeError(
                f"{size_bytes} bytes of records are above the segment's limit of {self.config.segment_bytes}.",
                limit="segment.bytes",
            )
        roll = self._rolls(size_bytes, now_ms)
        before_roll = self.producers.copy() if roll else None
        base_offset = self.log_end_offset
        undo: Undo = []
        try:
            duplicate = self._admit(headers, base_offset, undo, now_ms)
        except LogboomError:
            self.producers.revert(undo)
            raise
        if duplicate is not None:
            return duplicate
        staged = place(buffer, headers, base_offset, leader_epoch)
        staged.undo, staged.roll, staged.producers = undo, roll, before_roll
        self._stage(staged, base_offset, leader_epoch, now_ms)
        return Appended(base_offset, Offset(staged.next_offset - 1))

    def append_run(self, run: Sequence[Batch], *, leader_epoch: Epoch, now_ms: int) -> Staged | None:
        """Append batches that came together, none of an idempotent producer, as one.

        None, and nothing is done, where they do not go into the segment that is written to: `append` each of them.
        StorageError once the log has failed.
        """
        self._check_failure()
        base_offset = self.log_end_offset
        size_bytes = sum([len(buffer) for buffer, _ in run])
        if size_bytes > self.config.segment_bytes or self._rolls(size_bytes, now_ms):
            return None
        staged = place_run(run, base_offset, leader_epoch)
        self._stage(staged, base_offset, leader_epoch, now_ms)
        return staged

    def _stage(self, staged: Staged, base_offset: Offset, leader_epoch: Epoch, now_ms: int) -> None:
        self.epochs.begin(leader_epoch, base_offset)
        self._plan(staged, base_offset, now_ms)
        self.log_end_offset = staged.next_offset
        self.staged.append(staged)

    def roll(self) -> bool:
        """Stage the end of the segment that is written to: what is appended next begins a new one. Whether there was
        anything in it. The next `flush` does it."""
        self._check_failure()
        if self._planned_bytes == 0:
            return False
        end = self.log_end_offset
        staged = end_of_segment(end, self.producers.copy())
        self._plan(staged, end, None)
        self.staged.append(staged)
        return True

    def _admit(
        self,
        headers: Sequence[tuple[int, BatchHeader]],
        base_offset: Offset,
        undo: Undo,
        now_ms: int,
    ) -> Appended | None:
        """Check and record the sequences of idempotent batches; where a single one lies if it is a duplicate."""
        offset = base_offset
        for _, header in headers:
            if header.producer_id >= 0:
                self.producers.expire(now_ms)
                first = self.producers.check(header)
                if first is not None:
                    self.producers.revert(undo)
                    return Appended(first.base_offset, Offset(first.base_offset + first.last_offset_delta), True)
                self.producers.record(header, offset, now_ms, undo)
            offset = Offset(offset + header.last_offset_delta + 1)
        return None

    def _rolls(self, size_bytes: int, now_ms: int) -> bool:
        if self._planned_bytes == 0:
            return False
        since = self._planned_since_ms
        return (
            self._planned_bytes + size_bytes > self.config.segment_bytes
            or (since is not None and now_ms - since >= self.config.segment_ms)
            or self.log_end_offset - self._planned_base > _MAX_SEGMENT_OFFSETS
        )

    def _plan(self, staged: Staged, base_offset: Offset, now_ms: int | None) -> None:
        if staged.roll:
            self._planned_bytes, self._planned_base, self._planned_since_ms = 0, base_offset, None
            self._recovery_point_due_bytes = self._next_recovery_point(0)
        elif self._planned_bytes + staged.size_bytes >= self._recovery_point_due_bytes:
            self._recovery_point_due_bytes = self._next_recovery_point(self._planned_bytes + staged.size_bytes)
            staged.producers = self.producers.copy()
        if self._planned_since_ms is None:
            self._planned_since_ms = now_ms
        self._planned_bytes += staged.size_bytes

    def _next_recovery_point(self, position: int) -> int:
        """Where in the segment the next note is due: often in a small one, so that a thousand of them recover fast."""
        return position + min(max(position // 2, _FIRST_RECOVERY_POINT_BYTES), self.config.recovery_point_bytes)

    def start_epoch(self, epoch: Epoch, offset: Offset) -> None:
        """Record that the leadership `epoch` begins at `offset`, even if nothing is ever written in it."""
        self.epochs.begin(epoch, offset)

    def end_of_epoch(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        """The largest epoch up to `epoch` and its end offset; (-1, -1) for an epoch newer than all."""
        return self.epochs.end_of(epoch, self.log_end_offset)

    def abandon_staged(self) -> None:
        """Take back all that is staged: log end, producers and epochs are again those of what is written."""
        with self._io:
            self.producers.revert([displaced for staged in self.staged for displaced in staged.undo])
            self.staged.clear()
            self.log_end_offset = self.written_end
            # A leadership that begins exactly there stays, as if it had written nothing yet.
            self.epochs.truncate_end(Offset(self.written_end + 1))
            self.plan_from_disk(self._planned_since_ms)

    def truncate(self, offset: Offset, *, now_ms: int) -> None:
        """Remove every batch that reaches to or above `offset`, staged ones first; durable on return.

        StorageError where the disk fails or the batch at `offset` is damaged.
        """
        self.abandon_staged()
        if offset >= self.written_end:
            return
        with self._io:
            self._check_failure()
            self._places.clear()
            try:
                truncation.truncate(self, offset, now_ms)
            except OSError as error:  # half done, so not even a lack of room passes
                raise self._break(error) from error

    def delete_before(self, offset: Offset) -> int:
        """Move the log start up to `offset` (not above the durable end) and remove segments below; how many went.

        May wait for the disk: not on the loop.
        """
        gone = self.detach_before(offset)
        self.remove_detached(gone)
        return len(gone)

    def detach_before(self, offset: Offset) -> tuple[Segment, ...]:
        """The first half of `delete_before`: the start is moved, durably; nobody finds the segments below any more."""
        with self._io:
            self._check_failure()
            try:
                gone = truncation.detach_before(self, offset)
            except OSError as error:
                raise self._fail(error) from error
            self._places.clear()  # they would keep what goes
            return gone

    def remove_detached(self, gone: Sequence[Segment]) -> None:
        """The other half, which takes long where files are large, and may run beside all else.

        What a crash or an error leaves of them lies below the start and goes with the next `delete_before`.
        """
        try:
            for segment in gone:
                segment.remove()
            if gone:
                self.disk.sync_dir(self.directory)
        except SyncFailedError as error:
            raise self._break(error) from error
        except OSError as error:
            raise StorageError(f"Old segments of {self.directory} cannot be removed: {error}.") from error

    # --- the flusher's side -------------------------------------------------------------------------------------

    def flush(self, *, sync: bool) -> Offset:
        """Write what was staged before the call, and with `sync` make it durable; the new durable (or written) end.

        RetriableStorageError: what could not be written was cut back and is staged still, what could be is as safe as
        was asked for; `abandon_staged` and go on. StorageError: the log has failed and never writes again.
        """
        with self._io:
            self._check_failure()
            count = len(self.staged)
            try:
                self.save_epochs()  # no batch is written whose epoch is not in the file
                lack = writing.write_staged(self, count)
                if sync and self.durable_end < self.written_end:
                    self.active.sync()
                    self.set_durable(sync=False)
            except OSError as error:
                raise self._fail(error) from error
            if lack is not None:
                raise lack
            return self.durable_end if sync else self.written_end

    def new_segment(self, base: Offset) -> Segment:
        return Segment(
            self.disk,
            self.directory,
            base,
            self.config.index_interval_bytes,
            self.epochs.at,
            self.report,
            self.open_files,
        )

    def set_durable(self, *, sync: bool) -> None:
        """All that is written is synced: note it. Where the note cannot be written it is older than it might be, which
        costs recovery a longer tail and nothing else."""
        self.durable_end = self.written_end
        try:
            self.write_checkpoint(sync=sync)
        except OSError as error:
            if retriable_error_for(error, self.directory) is None:
                raise

    def write_checkpoint(self, *, sync: bool, log_start: Offset | None = None) -> None:
        """Note where the log is durable to: the end of the active segment, which is made so where it is not."""
        active = self.active
        self.save_epochs()
        if self.durable_end < self.written_end:
            active.sync()
            self.durable_end = self.written_end
        start = self.log_start_offset if log_start is None else log_start
        # An epoch that begins behind the durable end may be forgotten with the records before it.
        epoch = EpochHistory(self._epochs_saved).before(Offset(self.durable_end + 1))
        self._note(Checkpoint(self.durable_end, active.base, active.size_bytes, start, epoch), sync=sync)

    def _note(self, checkpoint: Checkpoint, *, sync: bool) -> None:
        self._checkpoint_file.write(replace(checkpoint, unsettled=self.unsettled), sync=sync)

    def settle(self, log_start: Offset | None = None) -> None:
        """Make the checkpoint durable, with another log start if given, and all names in the directory."""
        self.unsettled = True
        self.write_checkpoint(sync=True, log_start=log_start)
        self.disk.sync_dir(self.directory)
        if log_start is not None:
            self.log_start_offset = log_start
        self.unsettled = False
        self.write_checkpoint(sync=False)

    def close_checkpoint(self) -> None:
        """Hold no handle of it until it is written again."""
        self._checkpoint_file.close()

    def note_durable_end(self, end: Offset, segment: Segment, position: int) -> None:
        """Durably note an end that the segments are about to be cut to."""
        self._note(Checkpoint(end, segment.base, position, self.log_start_offset, self.epochs.before(end)), sync=True)

    def set_end(self, end: Offset) -> None:
        """Everything up to `end` is durable and nothing lies behind it."""
        self.log_end_offset = self.written_end = self.durable_end = self.active.known_end = end

    def save_epochs(self) -> None:
        """Replace the epoch file, durably, where it holds anything else."""
        entries = self.epochs.entries
        if entries != self._epochs_saved:
            epoch_files.save(self.disk, self.directory, self.epochs)
            self._epochs_saved = entries

    def try_save_epochs(self) -> bool:
        """As `save_epochs`; False where there is no room for it now. Every flush tries again before it writes."""
        try:
            self.save_epochs()
        except OSError as error:
            if retriable_error_for(error, self.directory) is None:
                raise
            return False
        return True

    def mark_epochs_saved(self, history: EpochHistory) -> None:
        """What the epoch file holds, so that it is written again only when that changes."""
        self._epochs_saved = history.entries

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise StorageError(self._failure)

    def _fail(self, error: OSError) -> StorageError:
        """The error to raise; what passes is no failure of the log."""
        return retriable_error_for(error, self.directory) or self._break(error)

    def _break(self, error: OSError) -> StorageError:
        self._failure = f"The log {self.directory} is closed for writing: {error}."
        return StorageError(self._failure)

    def checkpoint(self) -> None:
        """Make the note of the durable end itself durable."""
        with self._io:
            self._check_failure()
            try:
                self.active.save_index()
                self.write_checkpoint(sync=True)
            except OSError as error:
                raise self._fail(error) from error

    def close(self) -> None:
        """Flush, and leave everything so that the next open has nothing to do. Harmless after a failure.

        The files are let go of even where an error is raised: a full disk gets the room of a deleted log back.
        """
        try:
            if self._failure is None:
                self._settle()
        finally:
            self._failure = self._failure or f"The log {self.directory} is closed."
            self._checkpoint_file.close()
            for segment in self.segments:
                segment.release()

    def _settle(self) -> None:
        self.flush(sync=True)
        with self._io:
            try:
                self.active.trim()
                self.active.save_index()
                save_snapshot(self.disk, self.directory, self.log_end_offset, self.producers, bases=self.bases)
                drop_snapshots(self.disk, self.directory, self.log_end_offset)
                self.save_epochs()
                self.active.sync()
                self.write_checkpoint(sync=True)
            except OSError as error:
                raise self._fail(error) from error

    # --- reading ------------------------------------------------------------------------------------------------

    def read(
        self, offset: Offset, max_bytes: int, *, ceiling: Offset, cached_only: bool = False
    ) -> bytes | memoryview | None:
        """Whole batches from the one that holds `offset` on, none that reaches above `ceiling`.

        The first comes whatever its size, the others while they fit into `max_bytes`. Nothing at the ceiling. None
        only with `cached_only`, where the disk would have to be waited for. OffsetOutOfRangeError outside the log;
        StorageError where the batch is damaged. Every batch returned has been checked.
        """
        found = self.read_with_next_offset(offset, max_bytes, ceiling=ceiling, cached_only=cached_only)
        return None if found is None else found[0]

    def read_with_next_offset(
        self, offset: Offset, max_bytes: int, *, ceiling: Offset, cached_only: bool = False
    ) -> tuple[bytes | memoryview, Offset] | None:
        """As `read`, with the offset behind what was read."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset)
        if offset >= ceiling:
            return b"", offset
        try:
            return self._read(offset, max_bytes, ceiling, cached_only)
        except NotCachedError:
            return None
        except OSError as error:
            if offset < self.log_start_offset:  # its segment was deleted under this read
                raise self._out_of_range(offset) from error
            raise StorageError(f"Reading {self.directory} at offset {offset} failed: {error}.") from error

    def _out_of_range(self, offset: Offset) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(f"Offset {offset} is outside of {self.log_start_offset} to {self.log_end_offset}.")

    def _read(
        self, offset: Offset, max_bytes: int, ceiling: Offset, cached_only: bool
    ) -> tuple[bytes | memoryview, Offset]:
        place = self._places.get(offset)
        if place is not None and place[1] < place[0].size_bytes:
            segment, position = place
            found = segment.read_at(position, offset, max_bytes, ceiling, cached_only=cached_only)
        else:
            segment = self.segment_of(offset)
            self._keep_few_open(segment)
            found = segment.read(offset, max_bytes, ceiling, cached_only=cached_only)
        data, next_offset, end = found
        if len(self._places) >= _MAX_PLACES:
            self._places.clear()
        self._places[next_offset] = (segment, end)
        return data, next_offset

    def is_sequential(self, offset: Offset) -> bool:
        """Whether a recent read ended exactly before `offset`."""
        return offset in self._places

    def _keep_few_open(self, segment: Segment) -> None:
        """Old segments are opened by their first read; the one opened longest ago is let go."""
        if segment.end is not None and not segment.is_open:
            self._old_open.append(segment)
            while len(self._old_open) > _MAX_OLD_OPEN:
                self._old_open.popleft().release()

    def segment_of(self, offset: Offset) -> Segment:
        """The segment whose offsets hold `offset`."""
        segments, bases = self._layout
        return segments[max(bisect_right(bases, offset) - 1, 0)]

    def offset_for_time(self, timestamp_ms: int, *, ceiling: Offset) -> TimedOffset | None:
        """The first record below `ceiling` whose time is `timestamp_ms` or later. May wait for the disk."""
        return self._searched(partial(self._first_at_or_after, timestamp_ms, ceiling))

    def _first_at_or_after(self, timestamp_ms: int, ceiling: Offset) -> TimedOffset | None:
        wanted = search.Wanted(timestamp_ms, self.log_start_offset, ceiling, self.config.max_decompressed_bytes)
        return search.first_at_or_after(self.segments, wanted)

    def _searched(self, find: Callable[[], Result]) -> Result:
        """Search the segments; once more where some of them were deleted meanwhile."""
        while True:
            layout = self._layout
            try:
                return find()
            except OSError as error:
                if layout is self._layout:
                    raise StorageError(f"Searching {self.directory} failed: {error}.") from error

    def retained_from(self, retention: Retention, *, now_ms: int, high_watermark: Offset) -> Offset:
        """The log start offset that `retention` asks for: what `delete_before` is then told. May wait for the disk."""
        return self._searched(
            lambda: retained_from(
                self.segments, retention, now_ms=now_ms, start=self.log_start_offset, high_watermark=high_watermark
            )
        )

    def expired_to_the_end(self, retention: Retention, *, now_ms: int) -> bool:
        """Whether nothing is to be kept; `roll` then lets go of the last segment too. May wait for the disk."""
        return self._searched(
            lambda: expired_to_the_end(
                self.active, retention, now_ms=now_ms, start=self.log_start_offset, end=self.log_end_offset
            )
        )

    def max_timestamp(self, ceiling: Offset) -> TimedOffset | None:
        """The first of the records below `ceiling` with the newest time. May wait for the disk."""
        newest = self._searched(lambda: search.newest_time(self.segments, ceiling))
        return self.offset_for_time(newest, ceiling=ceiling) if newest >= 0 else None
