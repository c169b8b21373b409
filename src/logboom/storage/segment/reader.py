"""Whole, checked batches out of one segment."""

from collections.abc import Callable, Iterator

from logboom.base.ids import Offset
from logboom.records import HEADER_BYTES, BatchHeader, read_header, whole_batches
from logboom.storage.segment.file import SegmentFile
from logboom.storage.segment.index_file import SegmentIndex
from logboom.storage.segment.scan import BadBatchError, NotCachedError, batch_fault, read_some, salvage, walk
from logboom.storage.segment.sparse_index import SparseIndex
from logboom.storage.segment.walker import SegmentWalker


class SegmentReader:
    """Any thread. With `cached_only`, NotCachedError where the disk would have to be waited for.

    BadBatchError where a batch is damaged, or not there. Nothing is reported here: only who asked knows whether the log
    was cut back meanwhile.
    """

    __slots__ = ("_file", "_index", "_walker")

    def __init__(self, file: SegmentFile, index: SegmentIndex, walker: SegmentWalker) -> None:
        self._file = file
        self._index = index
        self._walker = walker

    def locate(self, offset: Offset, *, cached_only: bool) -> tuple[int, Offset]:
        """Position and base offset of the batch that holds `offset`."""
        file = self._file
        if cached_only and (file.cached_index is None or not file.is_open):
            raise NotCachedError
        if offset < file.base:
            raise self._bad(0, offset, "the segment that held this offset is missing")
        base, position = self._index.entries.floor(offset) or (file.base, 0)
        try:
            for at, header in walk(file.handle, position, base, file.size_bytes, cached_only=cached_only):
                if header.next_offset > offset:
                    return at, header.base_offset
        except BadBatchError as bad:
            if cached_only:
                raise NotCachedError from None  # the search after damage reads much
            # Bad at the very place the index named: rather the index is wrong than the log.
            if bad.position == position and self._index.make_again():
                return self.locate(offset, cached_only=False)
            return self._locate_past_damage(offset, bad)
        raise self._bad(file.size_bytes, offset, "the file ends before this offset")

    def batches_from(
        self, entry_of: Callable[[SparseIndex], tuple[Offset, int] | None]
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from an index entry on."""
        file = self._file
        offset, position = entry_of(self._index.entries) or (file.base, 0)
        try:
            yield from walk(file.handle, position, offset, file.size_bytes)
        except BadBatchError as bad:
            if bad.position != position or not self._index.make_again():
                raise self._bad(bad.position, bad.offset, bad.reason) from None
        else:
            return
        yield from self.batches_from(entry_of)

    def _locate_past_damage(self, offset: Offset, bad: BadBatchError) -> tuple[int, Offset]:
        """As `locate`, by a search between the two index entries around `offset` for batches that are beyond doubt."""
        file, index = self._file, self._index.entries
        base, position = index.floor(offset) or (file.base, 0)
        limit, end = index.after(position) or (file.limit, file.size_bytes)
        data = file.handle.read(position, end - position)
        for at, header in salvage(data, base, limit, self._walker.epoch_at):
            if header.base_offset <= offset < header.next_offset:
                return position + at, header.base_offset
        raise self._bad(bad.position, bad.offset, bad.reason)

    def _bad(self, position: int, offset: Offset, reason: str) -> BadBatchError:
        return BadBatchError(position, offset, reason, self._file.path)

    def read(
        self, offset: Offset, max_bytes: int, ceiling: Offset, *, cached_only: bool
    ) -> tuple[bytes | memoryview, Offset, int]:
        """Whole checked batches from the one that holds `offset` on, as `read_at` gives them."""
        position, base = self.locate(offset, cached_only=cached_only)
        try:
            return self.read_at(position, base, max_bytes, ceiling, cached_only=cached_only)
        except BadBatchError as bad:
            if base == offset:
                raise
            if cached_only:
                raise NotCachedError from None
            # The header that claims to hold this offset is of a damaged batch: the offset may lie after it.
            position, base = self._locate_past_damage(offset, bad)
        return self.read_at(position, base, max_bytes, ceiling, cached_only=False)

    def read_at(
        self, position: int, expected: Offset, max_bytes: int, ceiling: Offset, *, cached_only: bool
    ) -> tuple[bytes | memoryview, Offset, int]:
        """Whole checked batches from the one at `position` on, the first whatever its size, none that reaches above
        `ceiling`; also the offset and position after them. BadBatchError where the first is damaged; a later one is
        left for the next read.
        """
        data = self._read_at_least_one(position, max_bytes, cached_only)
        epoch_at, size = self._walker.epoch_at, len(data)
        # Nearly always this takes all there is: one loop over the batches about which there is no doubt.
        at, expected = whole_batches(data, expected, ceiling, epoch_at)
        # What ended that loop is looked at again, to tell the ceiling and a cut last batch from damage.
        while size - at >= HEADER_BYTES and expected < ceiling:
            header = read_header(data, at)
            if at and header.size_bytes > size - at:
                break
            fault = batch_fault(data, at, header, expected, size - at, epoch_at)
            if fault is not None:
                if at == 0:
                    raise self._bad(position, expected, fault)
                break  # the next read begins there
            if header.next_offset > ceiling:
                break
            at += header.size_bytes
            expected = header.next_offset
        return (data if at == size else memoryview(data)[:at]), expected, position + at

    def _read_at_least_one(self, position: int, max_bytes: int, cached_only: bool) -> bytes | memoryview:
        file = self._file
        if cached_only and not file.is_open:
            raise NotCachedError  # opening it may wait for the disk
        room = file.size_bytes - position
        data = read_some(file.handle, position, min(max(max_bytes, HEADER_BYTES), room), cached_only)
        if len(data) < HEADER_BYTES:
            raise self._bad(position, file.base, "the file ends inside a batch")
        first = read_header(data).size_bytes
        return read_some(file.handle, position, first, cached_only) if len(data) < first <= room else data
