"""The second pass of a cleaning: writing the file that takes the place of one or several segments.

A log has no holes: the next batch begins where the one before ends, which is how damage and lost batches are told from
offsets that nobody needs. So each run of removed offsets is covered by one empty batch, a gap (decision 22).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logboom.base.ids import Offset
from logboom.base.ports import File
from logboom.base.units import KIB
from logboom.records import MAX_OFFSET_DELTA, BatchHeader, gap_batch, is_gap, read_header
from logboom.storage.compaction.source import Batch, Step
from logboom.storage.segment import SparseIndex

_WRITE_BYTES: Final = 256 * KIB
"""At most two such pieces are on their way to the device at a time, so that no sync of another file waits behind more
(decision 22)."""


@dataclass(slots=True)
class _Gap:
    """Removed offsets that follow each other in one leader epoch, not written yet."""

    end: Offset
    first: Batch
    """The first batch that was removed."""
    batches: int = 1


class SegmentWriter:
    """One new file. As long as nothing differs from `source`, the only segment that it replaces, it is not made."""

    def __init__(self, make: Callable[[], File], source: File | None, interval_bytes: int, step: Step) -> None:
        """`make` opens the file, which is the caller's to close. `source` is None where it replaces several."""
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
        """Of the last piece that was written: the device may not have it yet."""
        self._gap: _Gap | None = None
        if source is None:
            self._begin()

    def copy(self, batch: Batch) -> None:
        """The next batch stays as it is."""
        self._end_gap()
        self._add_copy(batch)

    def replace(self, rewritten: bytearray) -> None:
        """The next batch is another one of the same offsets."""
        self._end_gap()
        self._begin()
        self._add(rewritten, read_header(rewritten))

    def remove(self, batch: Batch) -> None:
        """The next batch goes."""
        header, gap = batch[2], self._gap
        if (
            gap is not None
            and gap.first[2].leader_epoch == header.leader_epoch
            and header.last_offset - gap.first[2].base_offset <= MAX_OFFSET_DELTA
        ):
            gap.end = header.next_offset
            gap.batches += 1
            return
        self._end_gap()
        self._gap = _Gap(header.next_offset, batch)

    def finish(self) -> None:
        """Write what is left and sync the file. Raises OSError."""
        self._end_gap()
        if self._file is not None:
            self._flush()
            self._file.sync()

    def _end_gap(self) -> None:
        gap, self._gap = self._gap, None
        if gap is None:
            return
        header = gap.first[2]
        if gap.batches == 1 and is_gap(header):
            self._add_copy(gap.first)
            return
        self._begin()
        batch = gap_batch(header.base_offset, gap.end, header.leader_epoch)
        self._add(batch, read_header(batch))

    def _begin(self) -> None:
        """From here on the file differs: make it, and copy what is before."""
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

    def _add_copy(self, batch: Batch) -> None:
        data, at, header = batch
        if self._file is None:
            self._note(header)
        else:
            self._add(memoryview(data)[at : at + header.size_bytes], header)

    def _add(self, data: bytearray | memoryview, header: BatchHeader) -> None:
        # Copied, since a view of one batch would hold the whole read that it is from.
        self._buffer += data
        self._note(header)
        if len(self._buffer) >= _WRITE_BYTES:
            self._flush()

    def _note(self, header: BatchHeader) -> None:
        self.index.add(header.base_offset, self.size_bytes, header.size_bytes, header.max_timestamp)
        self.size_bytes += header.size_bytes

    def _flush(self) -> None:
        self._write(self._buffer)
        self._buffer = bytearray()

    def _write(self, data: bytes | bytearray) -> None:
        """Write the next bytes of the file; they are on their way to the device on return, those before are there."""
        assert self._file is not None
        at, size_bytes = self.written_bytes, len(data)
        self._file.write(at, [data])
        self._file.write_out(at, size_bytes, wait=False)
        self._file.write_out(at - self._on_its_way_bytes, self._on_its_way_bytes, wait=True)
        self.written_bytes += size_bytes
        self._on_its_way_bytes = size_bytes
        self._step(size_bytes)
