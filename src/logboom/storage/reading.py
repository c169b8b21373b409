"""Reading a log: batches from an offset on, and offsets by time. Any thread."""

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from logboom.base.errors import LogboomError, OffsetOutOfRangeError, StorageError, with_cause
from logboom.base.ids import Offset
from logboom.records import BatchHeader
from logboom.storage import search
from logboom.storage.concurrent_truncation import LogStateAtRead
from logboom.storage.config import TimedOffset
from logboom.storage.retention import Retention, expired_to_the_end, retained_from
from logboom.storage.scrubbing import Scrub
from logboom.storage.segment import BadBatchError, NotCachedError, Segment
from logboom.storage.state import LogState

Result = TypeVar("Result")

_MAX_READ_POSITIONS: Final = 256
_MAX_OLD_OPEN: Final = 8


class LogReader:
    """Reads what is written, also while it is being written to, deleted from its start, or has failed for writing."""

    __slots__ = ("_old_open", "_read_positions", "_state")

    def __init__(self, state: LogState) -> None:
        self._state = state
        # Where recent reads ended, and how often the log had been cut by then: a consumer that goes on from there needs
        # no search.
        self._read_positions: dict[Offset, tuple[Segment, int, int]] = {}
        self._old_open: deque[Segment] = deque()

    # --- batches --------------------------------------------------------------------------------------------------

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
        """As `read`, with the offset after what was read."""
        state = self._state
        while True:
            if not state.log_start_offset <= offset <= state.log_end_offset:
                raise self._out_of_range(offset)
            if offset >= min(ceiling, state.log_end_offset):
                return b"", offset
            at_read = LogStateAtRead(state)
            try:
                return self._read(offset, max_bytes, ceiling, cached_only, at_read)
            except NotCachedError:
                return None
            except BadBatchError as bad:
                if (damage := at_read.judge(bad)) is not None:
                    raise with_cause(damage, bad) from bad
            except OSError as error:
                if (failure := self._failure(offset, error, at_read)) is not None:
                    raise with_cause(failure, error) from error

    def _failure(self, offset: Offset, error: OSError, at_read: LogStateAtRead) -> LogboomError | None:
        """The error of a read that could not be done; None where it is to be done again."""
        state = self._state
        if offset < state.log_start_offset:  # its segment was deleted during this read
            return self._out_of_range(offset)
        if at_read.has_moved():  # a compacted segment took the place of the one that was read, or the log was cut back
            return None
        return (
            at_read.being_cut()
            or state.segment_of(offset).walker.unreadable(error, offset)
            or StorageError(f"Reading {state.directory} at offset {offset} failed: {error}.")
        )

    def _out_of_range(self, offset: Offset) -> OffsetOutOfRangeError:
        start, end = self._state.log_start_offset, self._state.log_end_offset
        return OffsetOutOfRangeError(f"Offset {offset} is outside of {start} to {end}.")

    def _read(
        self, offset: Offset, max_bytes: int, ceiling: Offset, cached_only: bool, at_read: LogStateAtRead
    ) -> tuple[bytes | memoryview, Offset]:
        known = self._read_positions.get(offset)
        # At the end of a segment's bytes it may be the next segment that goes on, which only a search finds.
        if (
            known is not None
            and known[1] < known[0].file.size_bytes
            and not known[0].file.retired
            and known[2] == at_read.cuts
        ):
            segment, position, _ = known
            found = segment.reader.read_at(position, offset, max_bytes, ceiling, cached_only=cached_only)
        else:
            segment = self._state.segment_of(offset)
            self._keep_few_open(segment)
            found = segment.reader.read(offset, max_bytes, ceiling, cached_only=cached_only)
        data, next_offset, end = found
        if len(self._read_positions) >= _MAX_READ_POSITIONS:
            self._read_positions.clear()
        if not at_read.is_cutting:
            self._read_positions[next_offset] = (segment, end, at_read.cuts)
        return data, next_offset

    def last_batch(self) -> BatchHeader | None:
        """The header of the last batch that is there, whatever is damaged or missing before and behind it; None where
        there is none. May wait for the disk."""
        for segment in reversed(self._state.segments):
            header = self._searched(partial(_last_batch_of, segment, self._state.log_end_offset))
            if header is not None:
                return header
        return None

    def is_sequential(self, offset: Offset) -> bool:
        """Whether a recent read ended exactly before `offset`."""
        return offset in self._read_positions

    def forget_positions(self) -> None:
        """Segments were cut or detached: positions in them mean nothing any more, and would keep their files open."""
        self._read_positions.clear()

    def forget_segments(self, segments: Sequence[Segment]) -> None:
        """These were replaced: hold nothing that keeps their files open."""
        self.forget_positions()
        for segment in segments:
            with contextlib.suppress(ValueError):
                self._old_open.remove(segment)

    def _keep_few_open(self, segment: Segment) -> None:
        """Complete segments are opened by their first read; the one opened longest ago is released."""
        if segment.end is not None and not segment.file.is_open:
            self._old_open.append(segment)
            while len(self._old_open) > _MAX_OLD_OPEN:
                self._old_open.popleft().file.release()

    def bytes_between(self, start: Offset, end: Offset) -> int:
        """Bytes of the batches from `start` up to `end`, as near as the index knows them. May wait for the disk."""
        return self._searched(lambda: self._bytes_before(end) - self._bytes_before(start))

    def _bytes_before(self, offset: Offset) -> int:
        return search.bytes_before(self._state.segments, offset, self._state.written_end)

    def scrub(self, start: Offset) -> Scrub:
        """A pass that reads and checks everything durable from `start` on."""
        return Scrub(self._state, start)

    @property
    def index_is_behind(self) -> bool:
        """Whether `load_index` is to be called some time before the next recovery, which would else read more."""
        return self._state.active.index.is_behind

    def load_index(self) -> None:
        """Have the index of the last segment in memory, so that the next checkpoint saves it. May wait for the disk."""
        with contextlib.suppress(OSError):  # a search that needs it tells its client
            self._state.active.index.load()

    # --- times ----------------------------------------------------------------------------------------------------

    def offset_for_time(self, timestamp_ms: int, *, ceiling: Offset) -> TimedOffset | None:
        """The first record below `ceiling` whose time is `timestamp_ms` or later. May wait for the disk."""
        return self._searched(partial(self._first_at_or_after, timestamp_ms, ceiling))

    def _first_at_or_after(self, timestamp_ms: int, ceiling: Offset) -> TimedOffset | None:
        state = self._state
        wanted = search.Wanted(timestamp_ms, state.log_start_offset, ceiling, state.config.max_decompressed_bytes)
        return search.first_at_or_after(state.segments, wanted)

    def max_timestamp(self, ceiling: Offset) -> TimedOffset | None:
        """The first of the records below `ceiling` with the newest time. May wait for the disk."""
        newest = self._searched(lambda: search.newest_time(self._state.segments, ceiling))
        found = self.offset_for_time(newest, ceiling=ceiling) if newest >= 0 else None
        if found is not None or newest < 0:
            return found
        # The indexes know the time of records too that lie below the log's start, in its first segment.
        newest = self._searched(partial(self._newest_from_start, ceiling))
        return self.offset_for_time(newest, ceiling=ceiling) if newest >= 0 else None

    def _newest_from_start(self, ceiling: Offset) -> int:
        state = self._state
        start, limit = state.log_start_offset, state.config.max_decompressed_bytes
        return search.newest_time_from(state.segments, start, ceiling, limit)

    def retained_from(self, retention: Retention, *, now_ms: int, high_watermark: Offset) -> Offset:
        """The log start offset that `retention` asks for, for `delete_before`. May wait for the disk."""
        state = self._state
        return self._searched(
            lambda: retained_from(
                state.segments, retention, now_ms=now_ms, start=state.log_start_offset, high_watermark=high_watermark
            )
        )

    def expired_to_the_end(self, retention: Retention, *, now_ms: int) -> bool:
        """Whether nothing is to be kept; `roll` then lets the last segment go, too. May wait for the disk."""
        state = self._state
        return self._searched(
            lambda: expired_to_the_end(
                state.active, retention, now_ms=now_ms, start=state.log_start_offset, end=state.log_end_offset
            )
        )

    def _searched(self, find: Callable[[], Result]) -> Result:
        """Search the segments; once more where some of them were deleted during it."""
        state = self._state
        while True:
            at_read = LogStateAtRead(state)
            try:
                return find()
            except BadBatchError as bad:
                if (damage := at_read.judge(bad)) is not None:
                    raise with_cause(damage, bad) from bad
            except OSError as error:
                if not at_read.has_moved():
                    failed = StorageError(f"Searching {state.directory} failed: {error}.")
                    raise with_cause(at_read.being_cut() or failed, error) from error


def _last_batch_of(segment: Segment, end: Offset) -> BatchHeader | None:
    """From its last index entry on, or from its start where nothing good follows that."""
    size_bytes = segment.size_bytes
    offset, position = segment.index.entries.floor(end) or (segment.base, 0)
    last = None
    for start, base in ((position, offset), (0, segment.base)):
        for _, last in segment.walker.walk_past_damage(start, base, size_bytes):  # noqa: B007 - the last one counts
            pass
        if last is not None:
            break
    return last
