"""`LogCompaction`: how dirty a log is, and `Cleaning`: one run of compaction, in steps."""

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock

from logboom.base.errors import CompactionCancelledError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import File, SyncFailedError
from logboom.records import HEADER_BYTES, MAX_OFFSET_DELTA, read_header
from logboom.storage.compaction import swap
from logboom.storage.compaction.passes import CompactionPlan, Passes, StartPasses, Written, in_this_process
from logboom.storage.compaction.record_filter import FilterCounts
from logboom.storage.compaction.settings import Cleaned, CompactionSettings, Dirt
from logboom.storage.compaction.source import Source
from logboom.storage.concurrent_truncation import LogStateAtRead
from logboom.storage.faults import retriable_error_for
from logboom.storage.files import Replacement
from logboom.storage.segment import BadBatchError, Segment
from logboom.storage.state import LogState

ForgetSegments = Callable[[Sequence[Segment]], None]
"""Called with segments that were replaced, so that nothing keeps holding them."""


class LogCompaction:
    """The part of a `PartitionLog` that cleans; shares the log's state and lock. Any thread."""

    def __init__(self, state: LogState, io: Lock, forget_segments: ForgetSegments) -> None:
        self._state = state
        self._io = io
        self._forget_segments = forget_segments
        self._running: Cleaning | None = None

    @property
    def first_dirty_offset(self) -> Offset:
        """Below it each key has one record at most."""
        return max(self._state.first_dirty_offset, self._state.log_start_offset)

    @property
    def truncation_count(self) -> int:
        """How often the end of the log, or the whole log, was truncated since it was opened."""
        return self._state.truncation_count

    def dirt(self, settings: CompactionSettings, *, now_ms: int, stable_end: Offset) -> Dirt:
        """How much there is to compact, if everything below `stable_end` is committed and belongs to no open
        transaction. May wait for the disk. Raises StorageError if it fails."""
        state = self._state
        while True:
            at_read = LogStateAtRead(state)
            try:
                return self._dirt(state.segments, settings, now_ms, stable_end)
            except BadBatchError as bad:
                if (damage := at_read.judge(bad)) is not None:
                    raise damage from bad
            except OSError as error:
                if not at_read.has_moved():
                    raise StorageError(f"Searching {state.directory} failed: {error}.") from error

    def _dirt(self, segments: Sequence[Segment], settings: CompactionSettings, now_ms: int, stable_end: Offset) -> Dirt:
        first_dirty = self.first_dirty_offset
        clean_bytes = dirty_bytes = 0
        cleanable_end, oldest_ms = segments[0].base, now_ms
        for segment in segments:
            if segment.end is None or segment.end > stable_end:
                break
            if segment.end <= first_dirty:
                clean_bytes += segment.size_bytes
            else:
                if settings.min_compaction_lag_ms and segment.max_timestamp > now_ms - settings.min_compaction_lag_ms:
                    break
                dirty_bytes += segment.size_bytes
                if settings.max_compaction_lag_ms is not None:
                    oldest_ms = min(oldest_ms, _first_time(segment, first_dirty, now_ms))
            cleanable_end = segment.end
        max_lag_ms = settings.max_compaction_lag_ms
        exceeded = bool(dirty_bytes) and max_lag_ms is not None and oldest_ms < now_ms - max_lag_ms
        return Dirt(clean_bytes, dirty_bytes, first_dirty, max(cleanable_end, first_dirty), exceeded)

    def begin(
        self,
        settings: CompactionSettings,
        *,
        now_ms: int,
        stable_end: Offset,
        start_passes: StartPasses = in_this_process,
    ) -> "Cleaning":
        """A run over everything that may be compacted now. One at a time: `abandon` it before the next one.

        `start_passes` decides where its passes run.
        """
        assert self._running is None or self._running.has_ended, "a log is cleaned once at a time"
        self._running = Cleaning(
            self, self._state, self._io, self._forget_segments, settings, now_ms, stable_end, start_passes
        )
        return self._running


class Cleaning:
    """One run over a log.

    `write_next` is called again and again on a thread of its own, and each swap that it returns on the flusher's
    thread, in turns, then `finish` there. Each swap leaves the log right, so that the run may end anywhere; `abandon`
    it then.
    """

    def __init__(
        self,
        compaction: LogCompaction,
        state: LogState,
        io: Lock,
        forget_segments: ForgetSegments,
        settings: CompactionSettings,
        now_ms: int,
        stable_end: Offset,
        start_passes: StartPasses,
    ) -> None:
        self.has_ended = False
        self._compaction = compaction
        self._state = state
        self._io = io
        self._forget_segments = forget_segments
        self._settings = settings
        self._now_ms = now_ms
        self._stable_end = stable_end
        self._truncation_count = state.truncation_count
        self._start_passes = start_passes
        self._passes: Passes | None = None
        self._first_dirty = self._dirty_end = compaction.first_dirty_offset
        """The dirty section whose keys are known."""
        self._cleanable_end = Offset(0)
        self._groups: deque[tuple[Segment, ...]] | None = None
        self._sources: Sequence[Segment] = ()
        """The segment being read."""
        self._source_handles: list[File] = []
        """Files of the group that is swapped next: they are open over the swap, so that removing their names is quick
        whatever their size."""
        self._is_stale = False
        """Whether the last swap was not carried out, so that nothing may rely on it."""
        self._target: File | None = None
        """The file that is written, under this name, until it is swapped in."""
        self._cleaned_name: str | None = None
        self._swapped: tuple[Segment, tuple[Segment, ...]] | None = None
        """The segment that was swapped in last, and those that it replaced."""
        self._bytes_read = self._bytes_written = 0
        self._bytes_before = self._bytes_after = 0
        self._segments_before = self._segments_after = 0
        self._counts = FilterCounts()

    # --- on a thread of its own -------------------------------------------------------------------------------------

    def write_next(self, pace: Callable[[int], None], cancelled: Callable[[], bool]) -> Callable[[], None] | None:
        """Write the next file, synced; the swap that puts it in place, None when all is done.

        `pace` is called with the bytes of each MiB or so that was read or written, and may sleep; `cancelled` is asked
        as often. CompactionCancelledError once it was, or where the log was truncated or its segments were deleted
        meanwhile. RetriableStorageError where room or handles are lacking. StorageError where a batch is damaged, which
        is reported, or the disk fails; with a SyncFailedError as its cause, the log dir must be taken offline.
        """
        state = self._state

        def step(size_bytes: int) -> None:
            if cancelled() or not self._is_current():
                raise CompactionCancelledError(f"Cleaning {state.directory} was cancelled.")
            pace(size_bytes)

        self._after_swap()
        if not self._is_current():
            raise CompactionCancelledError(f"Cleaning {state.directory} was cancelled.")
        assert self._target is None, "the last swap is to be run before the next file is written"
        try:
            if self._groups is None:
                self._groups = deque(self._begin(step))
            while self._groups:
                found = self._write(self._groups.popleft(), step)
                if found is not None:
                    return found
        except BadBatchError as bad:
            if not self._is_current():  # its file became shorter under the hands of who read it
                raise CompactionCancelledError(f"Cleaning {state.directory} was cancelled: {bad}") from bad
            name = bad.path.rpartition("/")[2]  # the directory may have another one by now
            damaged = next(segment for segment in self._sources if segment.file.name == name)
            raise damaged.walker.damage_error(bad.position, bad.offset, bad.reason) from bad
        except OSError as error:
            if not self._is_current() or not set(self._sources) <= set(state.segments):
                raise CompactionCancelledError(f"Cleaning {state.directory} was cancelled: {error}.") from error
            raise retriable_error_for(error, state.directory) or StorageError(
                f"Cleaning {state.directory} failed: {error}."
            ) from error
        return None

    def _after_swap(self) -> None:
        """Work that takes time and that nothing waits for: the new segment's index, and freeing the space of the old
        ones."""
        swapped, self._swapped = self._swapped, None
        self._source_handles.clear()
        if swapped is None:
            return
        new, replaced = swapped
        for segment in replaced:
            segment.file.drop_handle()
        if new.end is not None:
            with contextlib.suppress(OSError):  # it can be made again from the log
                new.index.seal(new.end)

    def _is_current(self) -> bool:
        """Whether what is being compacted is still the log: it was neither truncated nor closed, and the last swap was
        carried out."""
        state = self._state
        return state.truncation_count == self._truncation_count and state.failure is None and not self._is_stale

    def _begin(self, step: Callable[[int], None]) -> list[tuple[Segment, ...]]:
        """Read the dirty section; the groups of segments to rewrite, each as one."""
        state, settings, start = self._state, self._settings, self._first_dirty
        dirt = self._compaction.dirt(settings, now_ms=self._now_ms, stable_end=self._stable_end)
        self._cleanable_end = dirt.cleanable_end
        complete = [s for s in state.segments if s.end is not None and s.end <= dirt.cleanable_end]
        plan = CompactionPlan(
            first_dirty_offset=start,
            epochs=state.epochs.entries,
            settings=settings,
            # What the table remembers of a producer must be found again by a recovery that has no snapshot.
            remembered=frozenset(b.base_offset for _, producer in state.producers.copy() for b in producer.batches),
            now_ms=self._now_ms,
            max_decompressed_bytes=state.config.max_decompressed_bytes,
            index_interval_bytes=state.config.index_interval_bytes,
        )
        self._passes = passes = self._start_passes(plan, dirt.dirty_bytes + dirt.clean_bytes)
        for segment in (s for s in complete if s.end is not None and s.end > start):
            self._sources = (segment,)
            self._dirty_end, more = passes.read(_source(segment, start), self._files(step))
            if not more:
                break
        return group_by_size([s for s in complete if s.base < self._dirty_end], state.config.segment_bytes)

    def _write(self, group: tuple[Segment, ...], step: Callable[[int], None]) -> Callable[[], None] | None:
        end = group[-1].end
        assert end is not None
        assert self._passes is not None, "this run has ended"
        self._sources = group
        replacement = Replacement(group[0].base, end)
        self._cleaned_name = replacement.cleaned_name
        written = self._passes.write([_source(segment, segment.base) for segment in group], self._files(step))
        self._count(group, written)
        if self._target is None:
            self._cleaned_name = None
            return None
        self._source_handles = [segment.file.handle for segment in group]
        return lambda: self._swap(group, written, replacement)

    def _files(self, step: Callable[[int], None]) -> "_Files":
        return _Files(self._sources, self._make_target, self._count_read, step)

    def _make_target(self) -> File:
        assert self._cleaned_name is not None
        self._target = self._state.place.open(self._cleaned_name, create=True)
        return self._target

    def _count_read(self, size_bytes: int) -> None:
        self._bytes_read += size_bytes

    def _count(self, group: tuple[Segment, ...], written: Written) -> None:
        self._bytes_written += written.written_bytes
        self._bytes_before += sum(segment.size_bytes for segment in group)
        self._bytes_after += written.size_bytes
        self._segments_before += len(group)
        self._segments_after += 1
        self._counts.add(written.counts)

    # --- on the flusher's thread ------------------------------------------------------------------------------------

    def _swap(self, group: tuple[Segment, ...], written: Written, replacement: Replacement) -> None:
        """Replace the group by the new segment. Raises as `PartitionLog.detach_before`.

        Does nothing if the group is no longer part of the log; the next step of the run reports that.
        """
        self._is_stale = True  # until it is done
        state, disk, directory, target = self._state, self._state.disk, self._state.directory, self._target
        assert target is not None
        with self._io:
            segments = state.segments
            at = segments.index(group[0]) if group[0] in segments else -1
            is_current = state.truncation_count == self._truncation_count and state.failure is None
            if not is_current or at < 0 or segments[at : at + len(group)] != group:
                return
            new = state.new_segment(replacement.first)
            name = new.file.name
            try:
                # The checkpoint must not name a position in a file that is replaced.
                if not state.checkpoint_names_active:
                    state.write_checkpoint(sync=True)
                swap.commit(disk, directory, replacement)
                new.file.name = replacement.swap_name
                new.file.adopt(target, written.size_bytes, written.index)
                self._target = None
                # A reader that finds its segment retired looks for the one in its place: that has to be there already.
                state.set_segments((*segments[:at], new, *segments[at + len(group) :]))
                for segment in group:
                    segment.retire()
                swap.complete(disk, directory, replacement, [segment.base for segment in group])
                new.file.name = name
                new.file.unsynced = False
            except OSError as error:
                if isinstance(error, SyncFailedError) or new in state.segments:
                    raise state.fail(error) from error
                raise state.error_for(error) from error
            self._cleaned_name = None
            self._swapped = new, group
            self._is_stale = False
        self._forget_segments(group)

    def finish(self) -> Cleaned:
        """Record the offset up to which the log is clean; returns what was done. Raises as
        `PartitionLog.checkpoint`."""
        state = self._state
        assert not self.has_ended, "this run has ended"
        with self._io:
            state.check_writable()
            if not self._is_current():
                raise CompactionCancelledError(f"Cleaning {state.directory} was cancelled.")
            try:
                if self._dirty_end > state.first_dirty_offset:
                    state.set_first_dirty(self._dirty_end, sync=False)
            except OSError as error:
                raise state.error_for(error) from error
            self.has_ended = True
        return Cleaned(
            first_dirty_offset=self._compaction.first_dirty_offset,
            is_complete=self._dirty_end >= self._cleanable_end,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            bytes_before=self._bytes_before,
            bytes_after=self._bytes_after,
            segments_before=self._segments_before,
            segments_after=self._segments_after,
            records_removed=self._counts.records,
            records_without_key=self._counts.without_key,
            batches_without_horizon=self._counts.batches_without_horizon,
            batches_above_limit=self._counts.batches_above_limit,
        )

    # --- afterwards -------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """End the run and remove what it left unfinished. Harmless after `finish`. Waits for the disk."""
        self.has_ended = True
        self._after_swap()
        passes, self._passes = self._passes, None
        target, self._target = self._target, None
        name, self._cleaned_name = self._cleaned_name, None
        self._groups = None
        if passes is not None:
            passes.close()
        if target is not None:
            target.close()
        if name is not None:
            with contextlib.suppress(OSError):  # there is none, or else the next start removes it
                self._state.place.unlink(name)


class _Files:
    """The files of a step; see `passes.Files`."""

    def __init__(
        self,
        segments: Sequence[Segment],
        target: Callable[[], File],
        count_read: Callable[[int], None],
        step: Callable[[int], None],
    ) -> None:
        self.target = target
        self.did_write = step
        self._segments = segments
        self._count_read = count_read
        self._step = step

    def source(self, number: int) -> File:
        file = self._segments[number].file
        was_open, handle = file.is_open, file.handle
        if not was_open:
            file.release()  # `handle` stays open as long as anyone has it
        return handle

    def did_read(self, size_bytes: int) -> None:
        self._count_read(size_bytes)
        self._step(size_bytes)


def _source(segment: Segment, start: Offset) -> Source:
    """The segment, read from the batch that holds `start` on."""
    offset, position = segment.index.floor(start) if start > segment.base else (segment.base, 0)
    assert segment.end is not None, "a segment that is written to is not compacted"
    return Source(segment.path, offset, position, segment.end, segment.size_bytes)


def _first_time(segment: Segment, first_dirty: Offset, default_ms: int) -> int:
    """About when the oldest dirty record of a segment was written: the time of its first dirty batch that has one."""
    if first_dirty <= segment.base:
        data = segment.file.handle.read(0, HEADER_BYTES)
        time_ms = read_header(data).max_timestamp if len(data) == HEADER_BYTES else 0
        if time_ms > 0:
            return time_ms
    # A cleaning ended inside of it, or has to be done again since its end was forgotten: it may begin with gaps.
    for _, header in segment.reader.batches_from(lambda index: index.floor(first_dirty)):
        if header.next_offset > first_dirty and header.max_timestamp > 0:
            return header.max_timestamp
    return default_ms


def group_by_size(segments: Sequence[Segment], max_bytes: int) -> list[tuple[Segment, ...]]:
    """Segments that become one, as Kafka's Cleaner.groupSegmentsBySize: neighbours of at most `max_bytes` together, and
    no more offsets than an index can tell apart."""
    groups: list[list[Segment]] = []
    size_bytes = 0
    for segment in segments:
        size_bytes += segment.size_bytes
        assert segment.end is not None
        if groups and size_bytes <= max_bytes and segment.end - groups[-1][0].base <= MAX_OFFSET_DELTA:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size_bytes = segment.size_bytes
    return [tuple(group) for group in groups]
