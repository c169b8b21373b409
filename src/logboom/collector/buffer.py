"""The disk buffer of an input that cannot be read again: a `PartitionLog` of its own, bounded, read from its front.

Two threads share one: the intake stages lines and commits them, the agent reads what is durable and says what was
acknowledged. Space is given back segment by segment, by the intake. A line counts as taken once `commit` has returned.

Each record is one line: its timestamp is the time of reading, `u` marks a piece of an over-long line. Lines come out
with their offset for a position: many connections, each with positions of its own, share one buffer, and an offset is
what tells a line from all others of the buffer.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from logboom.base.errors import OffsetOutOfRangeError, RetriableStorageError, StorageError
from logboom.base.ids import Epoch, Offset
from logboom.base.ports import Disk
from logboom.base.units import DAY_MS, MIB
from logboom.collector.batch import Lines
from logboom.collector.config import BufferConfig
from logboom.records import Codec, Record, build_batch, iter_batches, iter_records
from logboom.storage import Damage, LogConfig, Notice, PartitionLog

_EPOCH: Final = Epoch(0)
_UNFINISHED: Final = ("u", b"")
_MAX_BATCH_BYTES: Final = MIB
_RECORD_OVERHEAD_BYTES: Final = 64
_MAX_DECOMPRESSED_BYTES: Final = 16 * MIB


class Buffered(NamedTuple):
    """Lines out of the buffer, with the offset behind them."""

    lines: Lines
    time_ms: int
    next_offset: Offset


class DiskBuffer:
    """A bounded queue of lines on disk. `reading_from` is the first offset that was never acknowledged."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: BufferConfig,
        *,
        reading_from: int,
        now_ms: int,
        report: Callable[[Damage | Notice], None],
    ) -> None:
        self.when_full = config.when_full
        self.max_bytes = config.max_bytes
        segment_bytes = max(2 * MIB, min(64 * MIB, config.max_bytes // 8))
        # Full is full with room left for the batches of one turn, so that the bound holds.
        self._full_bytes = config.max_bytes - min(2 * segment_bytes, config.max_bytes // 4)
        log_config = LogConfig(segment_bytes=segment_bytes, segment_ms=365 * DAY_MS)
        self._log = PartitionLog.open(disk, directory, log_config, now_ms=now_ms, report=report)
        start = Offset(max(reading_from, self._log.log_start_offset))
        self.lost_its_log = start > self._log.durable_end
        """Whether its offsets start over, since the earlier contents are gone."""
        if self.lost_its_log:
            start = self._log.log_start_offset
        self._next = start
        self._acked = start
        self._released = self._log.log_start_offset
        self._staged: list[list[Record]] = []
        self._staged_bytes = 0
        self.lines_damaged = 0
        self.lines_dropped = 0

    # --- the intake's side ---

    @property
    def is_full(self) -> bool:
        """Whether nothing more is taken for now."""
        return self._log.size_bytes + self._staged_bytes >= self._full_bytes

    def stage(self, lines: Lines, time_ms: int) -> None:
        """Stage lines for the next commit."""
        batch: list[Record] = []
        size = 0
        for index, value in enumerate(lines.values):
            headers = (_UNFINISHED,) if index in lines.unfinished else ()
            batch.append(Record(Offset(0), time_ms, None, value, headers))
            size += len(value) + _RECORD_OVERHEAD_BYTES
            if size >= _MAX_BATCH_BYTES:
                self._stage(batch, size)
                batch, size = [], 0
        if batch:
            self._stage(batch, size)

    def _stage(self, batch: list[Record], size_bytes: int) -> None:
        self._staged.append(batch)
        self._staged_bytes += size_bytes

    def commit(self) -> None:
        """Make what was staged durable. RetriableStorageError: what was not taken stays staged, for the next
        call or `drop`.
        StorageError: the buffer takes nothing any more."""
        before = self._log.log_end_offset
        for batch in self._staged:
            buffer = build_batch(batch, codec=Codec.NONE)
            self._log.append(buffer, tuple(iter_batches(buffer)), leader_epoch=_EPOCH, now_ms=batch[0].timestamp_ms)
        try:
            self._log.flush(sync=True)
        except RetriableStorageError:
            self._log.abandon_staged()
            taken = self._log.log_end_offset - before
            while taken:
                taken -= len(self._staged.pop(0))
            raise
        self._staged.clear()
        self._staged_bytes = 0

    def drop(self) -> int:
        """Drop what is staged; returns the number of lines."""
        dropped = sum(map(len, self._staged))
        self._staged.clear()
        self._staged_bytes = 0
        return dropped

    @property
    def has_staged(self) -> bool:
        """Whether a commit has something to do."""
        return bool(self._staged)

    def give_back(self) -> None:
        """Remove the segments that were acknowledged and whose acknowledgement is written down."""
        if self._released > self._log.log_start_offset:
            self._log.delete_before(self._released)

    def close(self) -> None:
        """Leave it so that the next start has nothing to do."""
        self._log.close()

    # --- the agent's side ---

    @property
    def acked(self) -> int:
        """What a checkpoint has to hold."""
        return self._acked

    @property
    def is_drained(self) -> bool:
        """Whether everything that was taken was acknowledged."""
        return self._acked >= self._log.durable_end

    @property
    def fill_bytes(self) -> int:
        """Bytes on disk."""
        return self._log.size_bytes

    @property
    def lines_waiting(self) -> int:
        """Lines that were taken and not acknowledged."""
        return max(0, self._log.durable_end - self._acked)

    def read(self) -> Buffered | None:
        """The next lines, all of one time of reading; None if there are none."""
        try:
            data = self._log.reader.read(self._next, 1, ceiling=self._log.durable_end)
        except (StorageError, OffsetOutOfRangeError):
            # What is damaged on disk is lost, is counted, and must not hold up what lies behind it.
            self._next = Offset(self._next + 1)
            self.lines_damaged += 1
            return None
        if not data:
            return None
        position, header = next(iter_batches(data))
        values: list[bytes] = []
        starts: list[int] = []
        unfinished: list[int] = []
        for record in iter_records(data, position, header, _MAX_DECOMPRESSED_BYTES):
            if record.offset < self._next:
                continue
            if _UNFINISHED in record.headers:
                unfinished.append(len(values))
            values.append(record.value or b"")
            starts.append(int(record.offset))
        self._next = header.next_offset
        lines = Lines(values, starts, header.next_offset, frozenset(unfinished))
        return Buffered(lines, header.base_timestamp, header.next_offset)

    def acknowledge(self, next_offset: Offset) -> None:
        """Everything below is safe in the log."""
        self._acked = next_offset

    def release(self, offset: int) -> None:
        """Everything below is written down as acknowledged, so its space may be given back."""
        self._released = Offset(offset)


def buffer_directory(input_name: str) -> str:
    """Where an input's buffer lies in the data directory."""
    return f"buffers/{input_name}"
