"""Reading the newest part of a log for the ids of its messages, in slices that are short enough for a reader thread.

A new leader does this once, and a broker after its start: what it then knows is what any leader of this log would know.
"""

from typing import NamedTuple, Protocol

from logboom.base.ids import Offset
from logboom.base.units import SECOND_MS
from logboom.broker.partition.id_window import IdWindow
from logboom.broker.partition.slices import SliceReader, read_slice_at
from logboom.records import MESSAGE_ID, header_values, iter_batches, records_body
from logboom.storage import TimedOffset


class IdReader(SliceReader, Protocol):
    """The part of a `storage.LogReader` that is used here. All of it may wait for the disk."""

    def offset_for_time(self, timestamp_ms: int, *, ceiling: Offset) -> TimedOffset | None: ...


class Moment(NamedTuple):
    """One moment by both clocks."""

    settled_ms: int
    monotonic_s: float


class IdLimits(NamedTuple):
    """How far back ids are remembered."""

    window_ms: int
    records_max: int
    max_decompressed_bytes: int

    @property
    def window_s(self) -> float:
        """In seconds."""
        return self.window_ms / SECOND_MS


class ScanMemory(Protocol):
    """What a scan may take."""

    @property
    def generation_bytes_max(self) -> int: ...
    @property
    def reload_bytes_max(self) -> int: ...


class IdScan:
    """All records of the log are written. `read_slice` is called until it says that it is done, in threads, one at a
    time; then `window` is the loop's."""

    def __init__(
        self, reader: IdReader, start: Offset, end: Offset, now: Moment, limits: IdLimits, memory: ScanMemory
    ) -> None:
        """`start`, `end`: of the log."""
        self.window = IdWindow(end, limits.window_s, limits.records_max, memory.generation_bytes_max)
        self.is_cut = False
        """Whether there was more to read than may be."""
        self._bytes_max = memory.reload_bytes_max
        self.read_bytes = 0
        self._reader = reader
        self._start = start
        self._end = end
        self._now = now
        self._limits = limits
        self._at: Offset | None = None

    def read_slice(self) -> bool:
        """Read on; whether there is no more to read. Raises LogboomError where the log cannot be read."""
        if self._at is None:
            self._at = self._first()
        if self._at >= self._end:
            return True
        data, self._at = read_slice_at(self._reader, self._at, self._end)
        self.read_bytes += len(data)
        self._take(data)
        return self._at >= self._end

    def _first(self) -> Offset:
        """The first record that counts, and the last one in any case: messages may have to follow it."""
        first = self._reader.offset_for_time(self._now.settled_ms - self._limits.window_ms, ceiling=self._end)
        wanted = self._end - 1 if first is None else min(first.offset, self._end - 1)
        return self._within_bytes(Offset(max(wanted, self._end - self._limits.records_max, self._start)))

    def _within_bytes(self, first: Offset) -> Offset:
        """The first offset from `first` on behind which there are no more bytes than may be read."""
        if first >= self._end or self._reader.bytes_between(first, self._end) <= self._bytes_max:
            return first
        self.is_cut = True
        below, above = first, Offset(self._end - 1)
        while below < above:
            middle = Offset((below + above) // 2)
            if self._reader.bytes_between(middle, self._end) > self._bytes_max:
                below = Offset(middle + 1)
            else:
                above = middle
        return above

    def _take(self, data: bytes | memoryview) -> None:
        now, note = self._now, self.window.note
        for position, header in iter_batches(data):
            if header.is_control:
                continue
            body = records_body(data, position, header, self._limits.max_decompressed_bytes)
            base_ms = header.base_timestamp
            for delta, later_ms, message_id in header_values(body, header.records_count, MESSAGE_ID):
                time_ms = header.max_timestamp if header.uses_append_time else base_ms + later_ms
                age_s = max(now.settled_ms - time_ms, 0) / SECOND_MS
                note(message_id, header.base_offset + delta, now.monotonic_s - age_s)
