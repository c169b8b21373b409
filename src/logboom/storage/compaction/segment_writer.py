"""The second pass of a compaction: writing the file that replaces one or several segments.

A log has no holes: the next batch begins where the one before ends. That is how damage and lost batches are
distinguished from offsets that nobody needs. So each run of removed offsets is covered by one empty batch, a gap
(decision 22).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logboom.base.ids import Epoch, Offset
from logboom.base.ports import File
from logboom.base.units import KIB
from logboom.records import LENGTH_PREFIX_BYTES, MAX_OFFSET_DELTA, BatchHeader, gap_batch, is_gap, read_header
from logboom.storage.compaction.source import Batch, Step
from logboom.storage.segment import SparseIndex

_WRITE_BYTES: Final = 256 * KIB
"""At most two such pieces are on their way to the device at a time, so that no sync of another file waits behind more
(decision 22)."""


@dataclass(slots=True)
class _Gap:
    """Removed offsets that follow each other in one leader epoch, not written yet."""

    start: int
    end: int
    leader_epoch: Epoch
    first: Batch
    """The first batch that was removed."""
    batches: int = 1


class SegmentWriter:
    """One new file. It is created only once something differs from `source`, if that is the only segment it
    replaces."""

    def __init__(self, make: Callable[[], File], source: File | None, interval_bytes: int, step: Step) -> None:
        """`make` opens the file, which the caller closes. `source` is None if it replaces several segments."""
        self.index = SparseIndex(interval_bytes)
        self.size_bytes = 0
        """Bytes of all batches so far, written or not."""
        self.written_bytes = 0
        self._make = make
        self._source = source
        self._step = step
        self._file: File | None = None
        self._buffer = bytearray()
        self._on_its_way_bytes = 0
        """The range of the last piece that was written, which the device may not have yet."""
        self._gap: _Gap | None = None
        self._run = b""
        """The read buffer that the current run of retained, adjacent batches is from; they are not copied yet."""
        self._run_start = self._run_end = 0
        if source is None:
            self._begin()

    def copy(self, batch: Batch) -> None:
        """Retain the next batch as it is."""
        if self._gap is not None:
            self._end_gap()
        data, at, header = batch
        end = at + LENGTH_PREFIX_BYTES + header[1]
        if self._file is not None:
            if data is not self._run or at != self._run_end:
                self._end_run()
                self._run, self._run_start = data, at
            self._run_end = end
            if len(self._buffer) + end - self._run_start >= _WRITE_BYTES:
                self._end_run()
        self._note(header, end - at)

    def replace(self, rewritten: bytearray) -> None:
        """Replace the next batch by another one with the same offsets."""
        self._end_gap()
        self._begin()
        self._add(rewritten, read_header(rewritten))

    def remove(self, batch: Batch) -> None:
        """Remove the next batch."""
        header, gap = batch[2], self._gap
        last_offset = header[0] + header[6]
        if gap is not None and gap.leader_epoch == header[2] and last_offset - gap.start <= MAX_OFFSET_DELTA:
            gap.end = last_offset + 1
            gap.batches += 1
            return
        if gap is not None:
            self._end_gap()
        self._gap = _Gap(header[0], last_offset + 1, header[2], batch)

    def finish(self) -> None:
        """Write what is left and sync the file. Raises OSError."""
        self._end_gap()
        self._end_run()
        if self._file is not None:
            self._flush()
            self._file.sync()

    def _end_gap(self) -> None:
        gap, self._gap = self._gap, None
        if gap is None:
            return
        if gap.batches == 1 and is_gap(gap.first[2]):
            self.copy(gap.first)
            return
        self._begin()
        batch = gap_batch(Offset(gap.start), Offset(gap.end), gap.leader_epoch)
        self._add(batch, read_header(batch))

    def _begin(self) -> None:
        """From here on the file differs: create it, and copy what comes before."""
        if self._file is not None:
            return
        self._file = self._make()
        self._file.truncate(0)
        position = 0
        while position < self.size_bytes:
            assert self._source is not None
            data = self._source.read(position, min(_WRITE_BYTES, self.size_bytes - position))
            self._step(len(data))
            self._write(data)
            position += len(data)

    def _add(self, data: bytearray, header: BatchHeader) -> None:
        self._end_run()
        self._buffer += data
        self._note(header, len(data))
        if len(self._buffer) >= _WRITE_BYTES:
            self._flush()

    def _end_run(self) -> None:
        """Copy the run of retained, adjacent batches at once. They are copied since a view would keep the whole read
        buffer alive."""
        run, start, self._run, self._run_start = self._run, self._run_start, b"", 0
        if run:
            self._buffer += memoryview(run)[start : self._run_end]
            if len(self._buffer) >= _WRITE_BYTES:
                self._flush()

    def _note(self, header: BatchHeader, size_bytes: int) -> None:
        index, position = self.index, self.size_bytes
        self.size_bytes = position + size_bytes
        index.add(header[0], position, size_bytes, header[8])

    def _flush(self) -> None:
        self._write(self._buffer)
        self._buffer = bytearray()

    def _write(self, data: bytes | bytearray) -> None:
        """Write the next bytes of the file; on return they are on their way to the device, and all before them have
        arrived."""
        assert self._file is not None
        at, size_bytes = self.written_bytes, len(data)
        self._file.write(at, [data])
        self._file.write_out(at, size_bytes, wait=False)
        self._file.write_out(at - self._on_its_way_bytes, self._on_its_way_bytes, wait=True)
        self.written_bytes += size_bytes
        self._on_its_way_bytes = size_bytes
        self._step(size_bytes)
