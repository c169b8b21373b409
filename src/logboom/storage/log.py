"""The log of one partition as the rest of the broker sees it: who may call what, from which thread.

- The event loop calls `append`, `append_run`, `append_replicated`, `roll` and `abandon_staged`. They decide where each
  batch goes, the segment it will lie in included, and stage it; none of them waits for the disk.
- The flusher's thread calls `flush`, `checkpoint`, `truncate` and `detach_before`. They do what was decided. The two
  threads share one list, of which the loop writes the end and the flusher takes the head.
- Through `inline` the loop itself writes what is small, while the flusher's thread is idle and a sync runs beside the
  loop.
- A thread of its own cleans a log of keys, through `compaction`; what it wrote is put in place on the flusher's thread.
- Any thread reads, through `reader`. Readers see tuples that are replaced whole.
"""

from collections.abc import Callable, Sequence
from threading import Lock

from logboom.base.errors import LogboomError, RecordListTooLargeError, StorageError, with_cause
from logboom.base.ids import Epoch, Offset
from logboom.base.ports import Disk
from logboom.storage import recovery, truncation, writing
from logboom.storage.compaction import LogCompaction
from logboom.storage.config import Appended, LogConfig
from logboom.storage.faults import retriable_error_for
from logboom.storage.inline_writes import InlineWrites
from logboom.storage.log_start import LogStart
from logboom.storage.open_files import OpenFiles
from logboom.storage.plan import SegmentPlan
from logboom.storage.producers import FirstSequence, ProducerTable, Undo
from logboom.storage.reading import LogReader
from logboom.storage.segment import Segment
from logboom.storage.staging import (
    Batch,
    Headers,
    Staged,
    admit,
    check_continues,
    end_of_segment,
    place,
    place_run,
)
from logboom.storage.state import LogState, Report, WriteNotifications
from logboom.storage.truncation import DetachedSegments


class PartitionLog:
    """Made by `open`; see the module's docstring for the threads."""

    def __init__(self, state: LogState, plan: SegmentPlan) -> None:
        self.reader = LogReader(state)
        self.start = LogStart(state)
        self.epochs = state.epochs
        self.producers = state.producers
        self._state = state
        self._plan = plan
        self._staged: list[Staged] = []
        self._io = Lock()
        self.inline = InlineWrites(state, self._staged, self._io)
        self.compaction = LogCompaction(state, self._io, self.reader.forget_segments)

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
        """Open the log in `directory`: create it if there is none, recover it if it was not closed.

        Everything found damaged or repaired is reported to `report`, from here and later from reads in any thread.
        Raises StorageError if the disk itself fails; on a full disk, which can be read, an existing log is opened.
        """
        try:
            files = OpenFiles() if open_files is None else open_files
            state = recovery.recover(disk, directory, config, now_ms=now_ms, report=report, open_files=files)
            plan = SegmentPlan(config)
            plan.restart(state.active.base, state.active.size_bytes, recovery.segment_begun_ms(state, now_ms))
        except OSError as error:
            fault = retriable_error_for(error, directory) or StorageError(
                f"The log {directory} cannot be opened: {error}."
            )
            raise with_cause(fault, error) from error
        return cls(state, plan)

    # --- what it is ---------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that can be read."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record, counting all that is staged."""
        return self._state.log_end_offset

    @property
    def written_end(self) -> Offset:
        """Below it everything was given to the operating system, and can be read."""
        return self._state.written_end

    @property
    def durable_end(self) -> Offset:
        """Below it everything survives a power failure."""
        return self._state.durable_end

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, oldest first."""
        return self._state.segments

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches on disk."""
        return sum(segment.size_bytes for segment in self._state.segments)

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        return self._state.config

    def configure(self, config: LogConfig) -> None:
        """Change the settings for what is appended from now on."""
        self._state.config = self._plan.config = config

    def notify_of_writes(self, on_written: WriteNotifications | None) -> None:
        """Call one of these whenever something was written, before its sync if there is one; None to tell nobody."""
        self._state.on_written = on_written

    # --- on the loop --------------------------------------------------------------------------------------------

    def append(self, buffer: bytearray | memoryview, headers: Headers, *, leader_epoch: Epoch, now_ms: int) -> Appended:
        """Give the batches offsets and the leader epoch in place and stage them; the buffer is the log's from here on.

        A duplicate of a remembered batch is not staged and answers with the offsets of the first. Raises the errors
        of `ProducerTable.check`, RecordListTooLargeError, and StorageError once the log has failed.
        """
        state = self._state
        state.check_writable()
        size_bytes = headers[-1][0] + headers[-1][1].size_bytes - headers[0][0]
        limit = state.config.max_append_bytes or state.config.segment_bytes
        if size_bytes > limit:
            raise RecordListTooLargeError(
                f"{size_bytes} bytes of records are above the segment's limit of {limit}.",
                limit="segment.bytes",
            )
        base_offset = state.log_end_offset
        before_roll = _producers_if_rolling(state, self._plan, size_bytes, now_ms)
        undo: Undo = []
        try:
            duplicate = admit(state.producers, headers, base_offset, undo, now_ms)
        except LogboomError:
            state.producers.revert(undo)
            raise
        if duplicate is not None:
            state.producers.revert(undo)
            return duplicate
        staged = place(buffer, headers, base_offset, leader_epoch)
        staged.undo, staged.roll, staged.producers = undo, before_roll is not None, before_roll
        state.epochs.begin(leader_epoch, base_offset)
        self._stage(staged, base_offset, now_ms)
        return Appended(base_offset, Offset(staged.next_offset - 1))

    def append_run(self, run: Sequence[Batch], *, leader_epoch: Epoch, now_ms: int) -> Staged | None:
        """Append batches that came together, none of an idempotent producer, as one.

        None, and nothing is done, where they do not go into the segment that is written to: `append` each of them.
        StorageError once the log has failed.
        """
        state = self._state
        state.check_writable()
        base_offset = state.log_end_offset
        size_bytes = sum([len(buffer) for buffer, _ in run])
        if size_bytes > state.config.segment_bytes or self._plan.rolls(size_bytes, base_offset, now_ms):
            return None
        staged = place_run(run, base_offset, leader_epoch)
        state.epochs.begin(leader_epoch, base_offset)
        self._stage(staged, base_offset, now_ms)
        return staged

    def append_replicated(self, buffer: bytearray | memoryview, headers: Headers, *, now_ms: int) -> Offset:
        """Stage the batches of a leader's log as they are, offsets and leader epochs included; the new log end offset.

        The leader has checked the sequences of idempotent producers, so they are recorded and not checked again: a
        follower that refused what its leader took would differ from it for ever. The caller has checked each batch's
        CRC. InvalidRecordError where they do not continue this log; StorageError once it has failed.
        """
        state = self._state
        state.check_writable()
        base_offset = state.log_end_offset
        check_continues(headers, base_offset, state.epochs.latest)
        size_bytes = headers[-1][0] + headers[-1][1].size_bytes - headers[0][0]
        before_roll = _producers_if_rolling(state, self._plan, size_bytes, now_ms)
        staged = place(buffer, headers, base_offset)
        staged.roll, staged.producers = before_roll is not None, before_roll
        for _, header in headers:
            state.epochs.begin(Epoch(header.leader_epoch), Offset(header.base_offset))
            if header.producer_id >= 0:
                state.producers.record(header, Offset(header.base_offset), now_ms, staged.undo)
        self._stage(staged, base_offset, now_ms)
        return staged.next_offset

    def _stage(self, staged: Staged, base_offset: Offset, now_ms: int) -> None:
        if staged.roll:
            self._plan.roll(base_offset)
        if self._plan.add(staged.size_bytes, now_ms) and not staged.roll:
            staged.producers = self._state.producers.copy()
        self._state.log_end_offset = staged.next_offset
        self._staged.append(staged)

    def roll(self) -> bool:
        """Stage the end of the active segment: what is appended next begins a new one. Returns whether the segment has
        any record. The next `flush` carries it out."""
        state = self._state
        state.check_writable()
        if self._plan.bytes == 0:
            return False
        end = state.log_end_offset
        self._staged.append(end_of_segment(end, state.producers.copy()))
        self._plan.roll(end)
        return True

    def abandon_staged(self) -> tuple[FirstSequence, ...]:
        """Take back all that is staged: log end, producers and epochs are again those of what is written. Returns the
        first sequence taken back of each idempotent producer."""
        state = self._state
        with self._io:
            undo = [displaced for staged in self._staged for displaced in staged.undo]
            taken_back = tuple(state.producers.first_of(undo))
            state.producers.revert(undo)
            self._staged.clear()
            state.log_end_offset = state.written_end
            # A leadership that begins exactly there stays, as if it had written nothing yet.
            state.epochs.truncate_end(Offset(state.written_end + 1))
            self._plan.restart(state.active.base, state.active.size_bytes, self._plan.since_ms)
        return taken_back

    # --- on the flusher's thread --------------------------------------------------------------------------------

    def flush(self, *, sync: bool, on_part: Callable[[Offset], None] | None = None) -> Offset:
        """Write what was staged before the call, and with `sync` make it durable; the new durable (or written) end.

        With `on_part` a sync follows each MiB or so, and the end of what is then durable goes there, the last one
        excepted: its clients are answered, and send more, while the disk works on the rest.

        RetriableStorageError: what could not be written was cut back and is staged still, what could be is as safe as
        was asked for; `abandon_staged` and go on. StorageError: the log has failed and never writes again.
        """
        state = self._state
        with self._io:
            state.check_writable()
            left = len(self._staged)
            try:
                state.epochs.save()  # no batch is written whose epoch is not in the file
                while True:
                    part = left if on_part is None or not sync else writing.part_of(self._staged, left)
                    before = state.written_end
                    lack = writing.write(state, self._staged, part)
                    if state.on_written is not None and state.written_end > before:
                        state.on_written.from_thread()
                    if sync and state.durable_end < state.written_end:
                        state.active.file.sync()
                        state.set_durable(sync=state.checkpoint_due)
                    left -= part
                    if lack is not None or not left or on_part is None:
                        break
                    on_part(state.durable_end)
            except OSError as error:
                raise with_cause(state.error_for(error), error) from error
            if lack is not None:
                raise lack
            return state.durable_end if sync else state.written_end

    def checkpoint(self) -> None:
        """Sync the checkpoint of the durable end."""
        state = self._state
        with self._io:
            state.check_writable()
            try:
                state.active.index.save()
                state.write_checkpoint(sync=True)
            except OSError as error:
                raise with_cause(state.error_for(error), error) from error

    def truncate(
        self, offset: Offset, *, now_ms: int, discard_all: bool = False, start_is_known: bool = True
    ) -> Offset:
        """Remove every batch that reaches to or above `offset`, staged ones first; durable on return.

        With `discard_all` remove all of them, and let the empty log begin at `offset`, wherever that is;
        `start_is_known` tells then whether what is below was deleted (`log_start`).

        The new log end offset: whatever was read and kept elsewhere of offsets from there on is of batches that are
        gone. On any thread that may wait, while the loop appends nothing: an append in between is refused.
        RetriableStorageError where room or handles are lacking, or old segments are being removed: nothing of the log
        is gone that has to stay, and it can be tried again. StorageError where the disk fails or, without
        `discard_all`, the batch at `offset` is damaged.
        """
        state = self._state
        self.abandon_staged()
        if offset >= state.written_end and not discard_all:
            # A leadership that has written nothing goes too: a replica that names its epoch as that of its last batch
            # would never agree with a leader that knows nothing of it (LeaderEpochFileCache.truncateFromEnd).
            state.epochs.truncate_end(offset)
            try:
                state.epochs.save()
            except OSError as error:
                raise with_cause(state.error_for(error), error) from error
            return state.log_end_offset
        with self._io:
            state.check_writable()
            state.failure = f"The log {state.directory} is being truncated."
            lack = None
            try:
                if discard_all:
                    truncation.restart_at(state, offset, now_ms, start_is_known=start_is_known)
                else:
                    truncation.truncate(state, offset, now_ms)
            except OSError as error:
                # Where it is half done, not even a lack of handles passes. The log stays as it is then, for readers
                # alone, and what they meet in it is damage.
                half_done, state.is_cutting = state.is_cutting, False
                lack = None if half_done else retriable_error_for(error, state.directory)
                if lack is None:
                    raise with_cause(state.fail(error), error) from error
            except StorageError:  # damage where the cut was to be: nothing was changed
                state.failure = None
                raise
            self.reader.forget_positions()
            self._plan.restart(state.active.base, state.active.size_bytes, now_ms)
            state.failure = None
            if lack is not None:
                raise lack
            return state.log_end_offset

    def delete_before(self, offset: Offset) -> int:
        """Move the log start up to `offset` (not above the durable end) and remove segments below; how many went.

        Waits for the disk.
        """
        gone = self.detach_before(offset)
        gone.remove()
        return len(gone.segments)

    def detach_before(self, offset: Offset) -> DetachedSegments:
        """The first half of `delete_before`: the start is moved, durably, and the segments below are not read again.
        Where it is already, what is below it counts as deleted from now on.

        The other half is `DetachedSegments.remove`, beside everything else.
        """
        state = self._state
        with self._io:
            state.check_writable()
            try:
                gone = truncation.detach_before(state, offset)
            except OSError as error:
                raise with_cause(state.error_for(error), error) from error
            self.reader.forget_positions()
            return gone

    def close(self) -> None:
        """Flush, and leave everything so that the next open has nothing to do. Harmless after a failure.

        The files are released even where an error is raised: a full disk gets the room of a deleted log back.
        """
        state = self._state
        try:
            if state.failure is None and not state.is_settled:
                self.flush(sync=True)
                with self._io:
                    try:
                        writing.settle(state)
                    except OSError as error:
                        raise with_cause(state.error_for(error), error) from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Write nothing more and release the files. The next open recovers the log, if there is to be one."""
        state = self._state
        state.failure = state.failure or f"The log {state.directory} is closed."
        state.close_checkpoint()
        for segment in state.segments:
            segment.file.release()

    def move_to(self, directory: str) -> None:
        """Rename the directory of a log that is closed.

        Reads and removals of old segments that are still under way go on in the new place. Waits for the disk. Raises
        OSError.
        """
        self._state.place.move_to(directory)


def _producers_if_rolling(state: LogState, plan: SegmentPlan, size_bytes: int, now_ms: int) -> ProducerTable | None:
    """The producer table as it is now, where this many more bytes begin a new segment."""
    return state.producers.copy() if plan.rolls(size_bytes, state.log_end_offset, now_ms) else None
