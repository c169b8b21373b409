"""One segment: a file of batches and its sparse index.

It knows positions in one file. Which segments there are, what is durable and who produces is the log's.
Its file is opened when it is first needed and its index loaded, or made again, when it is first asked.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Final

from logboom.base.errors import StorageError
from logboom.base.ids import Offset
from logboom.base.ports import Bytes, Disk, File
from logboom.base.units import KIB, MIB
from logboom.records import HEADER_BYTES, BatchHeader, read_header, whole_batches
from logboom.storage.config import Damage, Notice
from logboom.storage.faults import retriable_error_for
from logboom.storage.index import SparseIndex, sealed_newest
from logboom.storage.open_files import OpenFiles
from logboom.storage.scan import (
    BadBatchError,
    EpochAt,
    NotCachedError,
    batch_fault,
    head_fault,
    read_some,
    salvage,
    walk,
)
from logboom.storage.small_files import read_auxiliary, remove_auxiliary

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
SALVAGE_BYTES: Final = 32 * MIB

_MIN_ROOM_BYTES: Final = 64 * KIB
_SMALL_WRITE_BYTES: Final = 32 * KIB
_ZEROS: Final = memoryview(bytes(MIB))


def file_stem(offset: Offset) -> str:
    """Twenty digits, so that names sort as offsets do."""
    return f"{offset:020d}"


class Segment:
    """Batches from `base` on. One thread writes, any thread reads below what is written."""

    __slots__ = (
        "_allocated",
        "_disk",
        "_epoch_at",
        "_file",
        "_index",
        "_index_lock",
        "_index_remade",
        "_interval_bytes",
        "_newest",
        "_open_files",
        "_report",
        "_reported",
        "base",
        "end",
        "index_path",
        "known_end",
        "path",
        "size_bytes",
        "unsynced",
        "used",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base: Offset,
        interval_bytes: int,
        epoch_at: EpochAt,
        report: Callable[[Damage | Notice], None],
        open_files: OpenFiles,
    ) -> None:
        self.used = self.unsynced = False  # base: open_files.Owner
        self._open_files = open_files
        self.base = base
        self.path = f"{directory}/{file_stem(base)}{LOG_SUFFIX}"
        self.index_path = f"{directory}/{file_stem(base)}{INDEX_SUFFIX}"
        self.end: Offset | None = None
        """First offset of the next segment; None while this is the last."""
        self.known_end: Offset | None = None
        """While this is the last: the offset behind its batches, as far as that is known. No CRC covers an offset, so
        what a search behind damage finds must at least lie below."""
        self.size_bytes = 0
        """Bytes of batches; the file may be longer where room was reserved."""
        self._disk = disk
        self._interval_bytes = interval_bytes
        self._epoch_at = epoch_at
        self._report = report
        self._reported: set[int] = set()
        self._file: File | None = None
        self._index: SparseIndex | None = None
        self._index_lock = Lock()
        self._index_remade = False
        self._allocated = 0
        self._newest: int | None = None

    # --- files --------------------------------------------------------------------------------------------------

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.path)
            self._open_files.opened(self)
        self.used = True
        return file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def create(self) -> None:
        """Make an empty file, in place of one that a failed attempt may have left."""
        self._file = self._disk.open(self.path, create=True)
        self._file.truncate(0)
        self._open_files.opened(self)
        self._index = SparseIndex(self._interval_bytes)

    def release(self) -> None:
        """Let go of file and index; they come back when needed. Readers in flight keep theirs."""
        self._open_files.closed(self)
        self.drop_handle()

    def drop_handle(self) -> None:
        """Base: open_files.Owner."""
        self._file = None
        if self.end is not None:
            self._index = None

    def sync(self) -> None:
        """Return once all that was written survives a power failure."""
        self.file.sync()
        self.unsynced = False

    def remove(self) -> None:
        self._disk.unlink(self.path)
        if self._disk.exists(self.index_path):
            remove_auxiliary(self._disk, self.index_path)
        self._open_files.closed(self)
        self._file = None

    # --- writing ------------------------------------------------------------------------------------------------

    def append(self, buffers: Sequence[Bytes], size_bytes: int, preallocate_bytes: int) -> None:
        """Write behind the last batch. An OSError leaves `size_bytes` as it was; `cut` takes the rest back."""
        self.unsynced = True
        end = self.size_bytes + size_bytes
        if preallocate_bytes and end > self._allocated:
            self._reserve(end, size_bytes, preallocate_bytes)
        self.file.write(self.size_bytes, buffers)

    def wrote(self, batches: Sequence[tuple[Offset, int, int]]) -> None:
        """Take note of batches (offset, bytes, newest time) that `append` wrote."""
        with self._index_lock:
            self.size_bytes = self._index_here().add_run(batches, self.size_bytes)

    def _reserve(self, end: int, size_bytes: int, preallocate_bytes: int) -> None:
        """Make room behind `end`, so that the next syncs need not make the file's length durable too.

        As much as the segment is long, so that a thousand quiet partitions take nothing. A stream of small writes
        gets room that is zeroed: a sync into it changes nothing of the file but its bytes, which takes half the time
        of one that grows the file. For large writes the zeros would cost more than they save.
        """
        room = min(preallocate_bytes, max(end, _MIN_ROOM_BYTES))
        try:
            if size_bytes <= _SMALL_WRITE_BYTES:
                room = min(room, len(_ZEROS))
                self.file.write(end, [_ZEROS[:room]])
            else:
                self.file.allocate(end + room)
        except OSError:
            # Room is a help; the write itself tells whether the disk is full.
            self.cut()
        else:
            self._allocated = end + room

    def cut(self) -> None:
        """Make the file end with the last batch."""
        self.file.truncate(self.size_bytes)
        self._allocated = 0

    def shorten(self, position: int) -> None:
        """Remove the batches from `position` on, durably; this is the last segment now."""
        self.size_bytes = position
        self._newest = None
        self._index = self.load_index(position)
        self.cut()
        self.sync()
        self.rewrite_index()

    def trim(self) -> None:
        """Give back room that was reserved and not used."""
        if self._allocated > self.size_bytes:
            self.cut()

    def save_index(self) -> None:
        """Append new index entries to their file, without a sync: they can be made again."""
        index = self.index
        position, data, saved = index.pending_bytes()
        if data:
            file = self._disk.open(self.index_path, create=True)
            try:
                if not position:
                    file.truncate(0)  # there may be one that was of no use
                file.write(position, [data])
            finally:
                file.close()
            index.saved = saved

    def save_index_of_tail(self) -> None:
        """Save the index behind a tail that was just read: anew where its file goes on beyond what there is."""
        if not self._disk.exists(self.index_path):
            return  # it comes with the next note
        if self._disk.size(self.index_path) > self.index.saved_bytes:
            self.rewrite_index()
        else:
            self.save_index()

    def rewrite_index(self) -> None:
        """Replace the index file, which may hold entries of bytes that were cut; durable, so that none comes back."""
        self._replace_index(self.index)

    def _replace_index(self, index: SparseIndex) -> None:
        index.saved = 0
        _, data, saved = index.pending_bytes()
        try:
            file = self._disk.open(self.index_path, create=True)
        except OSError as error:
            if retriable_error_for(error, self.index_path) is None or self._disk.exists(self.index_path):
                raise
            return  # no room for it, and no old one either
        try:
            file.truncate(0)
            try:
                file.write(0, [data])
                index.saved = saved
            except OSError as error:
                if retriable_error_for(error, self.index_path) is None:
                    raise
                file.truncate(0)
            file.sync()
        finally:
            file.close()

    # --- the index ----------------------------------------------------------------------------------------------

    @property
    def index(self) -> SparseIndex:
        index = self._index
        if index is None:
            with self._index_lock:
                index = self._index_here()
        return index

    @property
    def max_timestamp(self) -> int:
        """Newest time of all batches. A segment that has ended is asked once, and no index is kept for it."""
        if self.end is None or self._index is not None:
            return self.index.max_timestamp
        if self._newest is None:
            self._newest = sealed_newest(self._disk, self.index_path, self.end, self.size_bytes)
        if self._newest is None:
            with self._index_lock:
                self._newest = self.load_index(self.size_bytes).max_timestamp
        return self._newest

    def _index_here(self) -> SparseIndex:
        """The index, loaded if need be; the lock is held, so that no entry is added to one that is replaced."""
        if self._index is None:
            self._index = self.load_index(self.size_bytes)
        return self._index

    def load_index(self, end_position: int) -> SparseIndex:
        """The index from its file as far as it is right, the rest made from the log up to `end_position`."""
        index = read_auxiliary(
            self._disk,
            self.index_path,
            lambda data: SparseIndex.load(data, self._interval_bytes, self.base, end_position),
            self._report,
        )
        if index is not None and not self._leads_to_a_batch(index, end_position):
            self._report(Notice(self.index_path, "names a place where no batch begins, and is made again"))
            index = None
        if index is None:
            return self.make_index(end_position)
        if index.cut_short and self.end is None:
            # Once other bytes lie there, such an entry would name a place that might be in the middle of a batch.
            self._replace_index(index)
        self._extend(index, end_position)
        return index

    def _leads_to_a_batch(self, index: SparseIndex, end_position: int) -> bool:
        """Whether its last entry does, from which it is extended."""
        if not index.offsets or index.positions[-1] == end_position:
            return True
        return self._is_batch(Offset(index.offsets[-1]), index.positions[-1], end_position)

    def _is_batch(self, offset: Offset, position: int, end_position: int) -> bool:
        data = self.file.read(position, HEADER_BYTES)
        return len(data) == HEADER_BYTES and head_fault(read_header(data), offset, end_position - position) is None

    def floor(self, offset: Offset) -> tuple[Offset, int]:
        """Offset and position of a batch at or below `offset`, as near as the index knows one. May make the index."""
        base, position = self.index.floor(offset) or (self.base, 0)
        if position < self.size_bytes and not self._is_batch(base, position, self.size_bytes) and self._remake_index():
            base, position = self.index.floor(offset) or (self.base, 0)
        return base, position

    def _remake_index(self) -> bool:
        """Make the index from the log once, because an entry led nowhere; False where that was done before."""
        with self._index_lock:
            if self._index_remade:
                return False
            self._index_remade = True
            self._report(Notice(self.index_path, "leads to places where no batch begins, and is made again"))
            self._index = self.make_index(self.size_bytes)
            return True

    def make_index(self, end_position: int) -> SparseIndex:
        """The index made from the log alone. That of a segment that has ended is saved, so that it is made once."""
        index = SparseIndex(self._interval_bytes)
        self._extend(index, end_position)
        if self.end is not None:
            self._save_made(index)
        return index

    def _save_made(self, index: SparseIndex) -> None:
        """From whichever thread reads; nobody else writes the index of a segment that has ended."""
        with contextlib.suppress(OSError):  # a help that may be made again the next time
            file = self._disk.open(self.index_path, create=True)
            file.truncate(0)
            _, data, index.saved = index.pending_bytes()
            file.write(0, [data])
            file.close()

    def _extend(self, index: SparseIndex, end_position: int) -> None:
        offset, position = (Offset(index.offsets[-1]), index.positions[-1]) if index.offsets else (self.base, 0)
        added = index.positions[-1] if index.offsets else -1
        for at, header in self.walk_past_damage(position, offset, end_position):
            if at > added or not index.offsets:
                index.add(header.base_offset, at, header.size_bytes, header.max_timestamp)
            else:
                index.upto = at + header.size_bytes
                index.max_timestamp = max(index.max_timestamp, header.max_timestamp)
        if self.end is not None:
            index.upto = end_position
            index.seal(self.end)

    def walk_past_damage(self, position: int, expected: Offset, end_position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and head of every batch that can be found, damage reported and left out."""
        while position < end_position:
            suspect = position, expected
            try:
                for at, header in walk(self.file, position, expected, end_position):
                    yield at, header
                    suspect = at, header.base_offset
                    position, expected = at + header.size_bytes, header.next_offset
                return
            except BadBatchError as bad:
                self._damaged(bad.position, bad.offset, bad.reason)
            found = self._next_good(suspect, position, end_position)
            if found is None:
                return
            position, expected = found

    def _next_good(self, suspect: tuple[int, Offset], position: int, end_position: int) -> tuple[int, Offset] | None:
        """The first good batch at or behind `position`.

        The batch before it is looked at again: it may be its head that led here wrongly.
        """
        start, expected = suspect
        limit = self._limit()
        while start < end_position:
            data = self.file.read(start, min(SALVAGE_BYTES, end_position - start))
            for at, header in salvage(data, expected, limit, self._epoch_at):
                if start + at >= position:
                    return start + at, header.base_offset
            if len(data) < SALVAGE_BYTES:
                return None
            start += SALVAGE_BYTES // 2
        return None

    # --- reading ------------------------------------------------------------------------------------------------

    def locate(self, offset: Offset, *, cached_only: bool) -> tuple[int, Offset]:
        """Position and base offset of the batch that holds `offset`; StorageError where it is damaged."""
        if cached_only and (self._index is None or self._file is None):
            raise NotCachedError
        if offset < self.base:
            raise self.damage_error(0, offset, "the segment that held this offset is missing")
        base, position = self.index.floor(offset) or (self.base, 0)
        try:
            for at, header in walk(self.file, position, base, self.size_bytes, cached_only=cached_only):
                if header.next_offset > offset:
                    return at, header.base_offset
        except BadBatchError as bad:
            if cached_only:
                raise NotCachedError from None
            if bad.position == position and self._remake_index():
                return self.locate(offset, cached_only=False)
            return self._locate_past_damage(offset, bad)
        raise self.damage_error(self.size_bytes, offset, "the file ends before this offset")

    def batches_from(
        self, entry_of: Callable[[SparseIndex], tuple[Offset, int] | None]
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and head of each batch from an index entry on; StorageError where damage is met."""
        offset, position = entry_of(self.index) or (self.base, 0)
        try:
            yield from walk(self.file, position, offset, self.size_bytes)
        except BadBatchError as bad:
            if bad.position != position or not self._remake_index():
                raise self.damage_error(bad.position, bad.offset, bad.reason) from None
        else:
            return
        yield from self.batches_from(entry_of)

    def _locate_past_damage(self, offset: Offset, bad: BadBatchError) -> tuple[int, Offset]:
        base, position = self.index.floor(offset) or (self.base, 0)
        limit, end = self.index.after(position) or (self._limit(), self.size_bytes)
        data = self.file.read(position, end - position)
        for at, header in salvage(data, base, limit, self._epoch_at):
            if header.base_offset <= offset < header.next_offset:
                return position + at, header.base_offset
        raise self.damage_error(bad.position, bad.offset, bad.reason)

    def _limit(self) -> Offset:
        if self.end is not None:
            return self.end
        return self.known_end if self.known_end is not None else Offset(2**63 - 1)

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
            # The head that claims to hold this offset is of a damaged batch: the offset may lie behind it.
            position, base = self._locate_past_damage(offset, bad)
        return self.read_at(position, base, max_bytes, ceiling, cached_only=False)

    def read_at(
        self, position: int, expected: Offset, max_bytes: int, ceiling: Offset, *, cached_only: bool
    ) -> tuple[bytes | memoryview, Offset, int]:
        """Whole checked batches from the one at `position` on, the first whatever its size.

        Also the offset and position behind them. BadBatchError where the first is damaged.
        """
        data = self._read_at_least_one(position, max_bytes, cached_only)
        # The run of batches about which there is no doubt, then whatever ends it.
        (at, expected), size = whole_batches(data, expected, ceiling, self._epoch_at), len(data)
        while size - at >= HEADER_BYTES and expected < ceiling:
            header = read_header(data, at)
            if at and header.size_bytes > size - at:
                break
            fault = batch_fault(data, at, header, expected, size - at, self._epoch_at)
            if fault is not None:
                self._damaged(position + at, expected, fault)
                if at == 0:
                    raise BadBatchError(position, expected, fault, self.path)
                break
            if header.next_offset > ceiling:
                break
            at += header.size_bytes
            expected = header.next_offset
        return (data if at == size else memoryview(data)[:at]), expected, position + at

    def _read_at_least_one(self, position: int, max_bytes: int, cached_only: bool) -> bytes | memoryview:
        if cached_only and self._file is None:
            raise NotCachedError  # opening it may wait for the disk
        room = self.size_bytes - position
        data = read_some(self.file, position, min(max(max_bytes, HEADER_BYTES), room), cached_only)
        if len(data) < HEADER_BYTES:
            reason = "the file ends inside a batch"
            raise BadBatchError(position, self.base, reason, self.path)
        first = read_header(data).size_bytes
        return read_some(self.file, position, first, cached_only) if len(data) < first <= room else data

    def _damaged(self, position: int, offset: Offset, reason: str) -> Damage:
        damage = Damage(self.path, position, offset, reason)
        if position not in self._reported:
            self._reported.add(position)
            self._report(damage)
        return damage

    def damage_error(self, position: int, offset: Offset, reason: str) -> StorageError:
        """The answer to a read of damaged bytes; the first of its position is reported."""
        return StorageError(str(self._damaged(position, offset, reason)))
