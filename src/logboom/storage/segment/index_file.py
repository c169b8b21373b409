"""The index of one segment between memory, its `.index` file and the log it can always be made again from.

It is read from the disk by the threads that search it, never by the writer: a read that hangs must hold up neither
appends nor the event loop. While the index is not in memory the writer goes on with its file unread, if recovery found
how that ends (`walk_at_start`); else it only moves the end of the segment, and the next load of the index finds those
batches in the log.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Lock
from typing import Final

from logboom.base.ids import Offset
from logboom.base.ports import Disk
from logboom.records import BatchHeader
from logboom.storage.config import Damage, Notice
from logboom.storage.faults import retriable_error_for
from logboom.storage.segment.directory import LogDirectory
from logboom.storage.segment.file import SegmentFile
from logboom.storage.segment.sparse_index import SparseIndex, ends_within, floor_near_end, sealed_newest
from logboom.storage.segment.walker import SegmentWalker
from logboom.storage.small_files import read_auxiliary, remove_auxiliary

_ADDED_MAX: Final = 100_000
"""Batches that are remembered for a load while it reads the disk. A load that takes longer is repeated by a later
search."""


class SegmentIndex:
    """Loaded, or made again, when it is first asked. Any thread asks; only the log's writer adds and saves.

    `_lock`, which the writer needs, is held for changes in memory alone and never while the disk is asked.
    """

    __slots__ = (
        "_added",
        "_directory",
        "_disk",
        "_file",
        "_interval_bytes",
        "_lock",
        "_name",
        "_newest_ms",
        "_opening",
        "_remade",
        "_remaking",
        "_report",
        "_retired",
        "_tail",
        "_walker",
        "is_behind",
    )

    def __init__(
        self,
        disk: Disk,
        directory: LogDirectory,
        name: str,
        file: SegmentFile,
        walker: SegmentWalker,
        interval_bytes: int,
        report: Callable[[Damage | Notice], None],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._name = name
        self._file = file
        self._walker = walker
        self._interval_bytes = interval_bytes
        self._report = report
        self._lock = Lock()
        self._added: list[tuple[Offset, int, int]] | None = None
        """While a thread reads the index from the disk: the batches added since it began."""
        self.is_behind = False
        """Whether batches were added while the index was not in memory, and will be missing in its file. Loading and
        saving it keeps recovery short."""
        self._tail: SparseIndex | None = None
        """While the index is not in memory: the last entry of its file, and those that go after it."""
        self._remaking = Lock()
        self._remade = False
        self._opening = Lock()
        self._retired = False
        self._newest_ms: int | None = None

    @property
    def path(self) -> str:
        return f"{self._directory.path}/{self._name}"

    # --- asking -------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> SparseIndex:
        """The index. May wait for the disk, where it is not in memory."""
        index = self._file.cached_index
        return self._replaced_by(self._load) if index is None else index

    @property
    def max_timestamp(self) -> int:
        """Newest time of all batches. A complete segment's is read from its file's last entry, once."""
        file = self._file
        if file.end is None or file.cached_index is not None:
            return self.entries.max_timestamp
        if self._newest_ms is None:
            self._newest_ms = sealed_newest(self._disk, self.path, file.end, file.size_bytes)
        if self._newest_ms is None:
            # Not kept in memory: retention looks at every old segment.
            self._newest_ms = self._completed(self._load(file.size_bytes), file.size_bytes).max_timestamp
        return self._newest_ms

    def floor(self, offset: Offset) -> tuple[Offset, int]:
        """Offset and position of a batch at or below `offset`, as near as the index knows one. May make the index."""
        file = self._file
        base, position = self.entries.floor(offset) or (file.base, 0)
        if (
            position < file.size_bytes
            and not self._walker.is_batch(base, position, file.size_bytes)
            and self.make_again()
        ):
            base, position = self.entries.floor(offset) or (file.base, 0)
        return base, position

    def floor_at_start(self, offset: Offset) -> tuple[Offset, int]:
        """As `floor`, for one offset near the end of the segment and an index that nothing else has asked for yet.

        A thousand logs are opened at once: their indexes are read when they are used, and only the last entries now.
        """
        file = self._file
        found = None
        if file.cached_index is None:
            found = floor_near_end(self._disk, self.path, offset)
        if found is None or found[1] >= file.size_bytes or not self._walker.is_batch(*found, file.size_bytes):
            return self.floor(offset)
        return found

    def walk_at_start(self, offset: Offset) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of the batches from `offset` on, or a little before, to the end of the segment.

        Recovery has to walk them anyway, and the file of the index ends before them or among them. What they add to it
        is remembered here, so that the writer can go on with the file though nobody has read the whole of it.
        """
        file = self._file
        base, position = self.floor_at_start(offset)
        tail = None
        if file.cached_index is None and file.end is None:
            tail = SparseIndex.at_end_of(self._disk, self.path, self._interval_bytes)
        last_entry = (tail.offsets[-1], tail.positions[-1]) if tail is not None else None
        joined = False
        for at, header in self._walker.walk_past_damage(position, base, file.size_bytes):
            if tail is not None:
                joined = joined or (header.base_offset, at) == last_entry
                _add_behind(tail, at, header)
            yield at, header
        self._tail = tail if joined else None  # an entry that led to no batch is for `make_again`

    def check_at_start(self) -> None:
        """Load the index now if its file may name places after the last batch: they must be gone before other bytes
        lie there."""
        if self._file.cached_index is None and not ends_within(self._disk, self.path, self._file.size_bytes):
            self._replaced_by(partial(self._load, alone=True))

    def make_again(self) -> bool:
        """Make the index from the log, because an entry led to no batch; False where that was done before.

        Once is enough: what leads nowhere in an index that was made from the log is damage of the log.
        """
        misleading = self._file.cached_index
        with self._remaking:  # while the log is read; only threads that were misled by this index too wait for it
            if self._remade:
                return self._file.cached_index is not misleading
            self._report(Notice(self.path, "leads to places where no batch begins, and is made again"))
            self._replaced_by(self._make, instead_of_others=True)
            self._remade = True
            return True

    def load(self) -> None:
        """Have the index in memory. Raises OSError where it cannot be read for lack of a handle."""
        if self._file.cached_index is None:
            self._replaced_by(self._load)

    # --- loading and making ---------------------------------------------------------------------------------------

    def _replaced_by(self, read: Callable[[int], SparseIndex], *, instead_of_others: bool = False) -> SparseIndex:
        """The index that `read` gets from the disk, up to an end position; it takes the place of the one in memory.

        The writer goes on meanwhile, and what it adds is put after it. Where another thread reads the index already,
        this one reads it for its own search instead of waiting, because the other one's read may hang; with
        `instead_of_others` it is this one's that is kept.
        """
        file = self._file
        with self._lock:
            end_position = file.size_bytes
            added: list[tuple[Offset, int, int]] = []
            if self._added is None or instead_of_others:
                self._added = added
        try:
            index = read(end_position)
        except BaseException:  # whatever ended this read, the next one may keep its index
            with self._lock:
                if self._added is added:
                    self._added = None
            raise
        with self._lock:
            if self._added is added:  # else another thread reads it too, the log was cut back, or this took too long
                self._added = None
                index.add_run(added, end_position)
                index.end = None if added else index.end
                file.cached_index, self.is_behind, self._tail = index, False, None
                end_position = file.size_bytes
        return self._completed(index, end_position)

    def _completed(self, index: SparseIndex, end_position: int) -> SparseIndex:
        """The index up to `end_position`. Where that is the end of a complete segment, it gets the entry that says so
        and is saved, so that it is made once."""
        file = self._file
        if file.end is not None and end_position == file.size_bytes:
            with self._lock:
                index.upto = end_position
                index.seal(file.end if index.end is None else index.end)
            with contextlib.suppress(OSError):  # it can be made again the next time
                self._save(index)
        return index

    def _load(self, end_position: int, *, alone: bool = False) -> SparseIndex:
        """The index from its file as far as that is right, the rest made from the log up to `end_position`.

        `alone`: nothing is written meanwhile, so that entries after `end_position` are of bytes that are gone.
        """
        file = self._file
        index = read_auxiliary(
            self._disk,
            self.path,
            lambda data: SparseIndex.load(data, self._interval_bytes, file.base, end_position),
            self._report,
        )
        if self._retired:  # what was read may be the index of the segment that took this one's place
            raise FileNotFoundError(errno.ENOENT, "it was replaced by that of a compacted segment", self.path)
        if index is not None and not self._leads_to_a_batch(index, end_position):
            self._report(Notice(self.path, "names a place where no batch begins, and is made again"))
            index = None
        if index is None:
            return self._make(end_position)
        if alone and index.cut_short and file.end is None:
            # Once other bytes lie there, such an entry might name a place in the middle of a batch, so it must be gone,
            # durably, before anything is appended.
            self._replace(index)
        _extend(index, self._walker, self._file.base, end_position)
        return index

    def _leads_to_a_batch(self, index: SparseIndex, end_position: int) -> bool:
        """Whether its last entry does, from which it is extended."""
        if not index.offsets or index.positions[-1] == end_position:
            return True
        return self._walker.is_batch(Offset(index.offsets[-1]), index.positions[-1], end_position)

    def _make(self, end_position: int) -> SparseIndex:
        """The index made from the log alone."""
        index = SparseIndex(self._interval_bytes)
        _extend(index, self._walker, self._file.base, end_position)
        return index

    # --- writing --------------------------------------------------------------------------------------------------

    def start_empty(self) -> None:
        """The segment was just created: there is nothing to load."""
        self._file.cached_index = SparseIndex(self._interval_bytes)

    def add(self, batches: Sequence[tuple[Offset, int, int]]) -> None:
        """Take note of batches (offset, bytes, newest time) that were written to the end of the file: readers find
        them from now on. Does not wait for the disk."""
        file = self._file
        with self._lock:
            index = file.cached_index or self._tail
            if index is None:
                self.is_behind = True
                file.size_bytes += sum([size_bytes for _, size_bytes, _ in batches])
            else:
                file.size_bytes = index.add_run(batches, file.size_bytes)
            if self._added is not None:
                self._added += batches
                if len(self._added) > _ADDED_MAX:
                    self._added = None

    def seal(self, end: Offset) -> None:
        """Add the entry of the segment's end and save: no more batches come."""
        index = self._file.cached_index or self._tail
        if index is not None:
            with self._lock:
                index.seal(end)
            self._save(index)
            self._tail = None

    def save(self) -> None:
        """Append new entries to the file, where they are known. Not synced: they can be made again."""
        index = self._file.cached_index
        if index is None and self._added is None:  # not under the hands of a thread that reads the file
            index = self._tail
        if index is not None:
            self._save(index)

    def _save(self, index: SparseIndex) -> None:
        position, data, saved = index.pending_bytes()
        if not data:
            return
        # Under the lock the name still means this segment's file. Once it is open, what is written goes to this file
        # whatever takes its name; the lock must not be held over the write, which may hang: searches save too.
        with self._opening:
            if self._retired:
                return
            file = self._directory.open(self._name, create=True)
        try:
            if not position:
                file.truncate(0)  # there may be one that was of no use
            file.write(position, [data])
        finally:
            file.close()
        index.saved = saved

    def retire(self) -> None:
        """The segment is about to be replaced: on return its file is not opened for writing any more, so that the next
        one of that name is safe. A write under way ends in the old file."""
        with self._opening:
            self._retired = True

    def shorten(self, position: int) -> None:
        """The log was cut back to `position`: forget what lay beyond it, before the file itself is cut."""
        self._newest_ms = None
        with self._lock:
            self._added = None  # what another thread reads of the index now is not to be kept
            self._tail = None
        self._file.cached_index = self._load(position, alone=True)

    def rewrite(self) -> None:
        """Replace the file, which may hold entries of bytes that were cut; durable, so that none comes back."""
        self._replace(self.entries)

    def _replace(self, index: SparseIndex) -> None:
        index.saved = 0
        _, data, saved = index.pending_bytes()
        try:
            file = self._directory.open(self._name, create=True)
        except OSError as error:
            if retriable_error_for(error, self.path) is None or self._disk.exists(self.path):
                raise
            return  # no room for it, and no old one either
        try:
            # An empty index is right, if of little use; one with entries of bytes that were cut is not. So the old
            # entries go first, and a lack of room for the new ones is no failure.
            file.truncate(0)
            try:
                file.write(0, [data])
                index.saved = saved
            except OSError as error:
                if retriable_error_for(error, self.path) is None:
                    raise
                file.truncate(0)
            file.sync()
        finally:
            file.close()

    def remove(self) -> None:
        with self._directory.held() as directory:
            path = f"{directory}/{self._name}"
            if self._disk.exists(path):
                remove_auxiliary(self._disk, path)


def _extend(index: SparseIndex, walker: SegmentWalker, base: Offset, end_position: int) -> None:
    """Add the batches after the last entry of `index`, up to `end_position` of a segment that begins at `base`."""
    offset, position = (Offset(index.offsets[-1]), index.positions[-1]) if index.offsets else (base, 0)
    for at, header in walker.walk_past_damage(position, offset, end_position):
        _add_behind(index, at, header)
        offset = header.next_offset
    index.end = offset


def _add_behind(index: SparseIndex, position: int, header: BatchHeader) -> None:
    """Add the next batch of a walk that began at the last entry of `index`, or before it."""
    last_position = index.positions[-1] if index.offsets else -1
    if position > last_position:
        index.add(header.base_offset, position, header.size_bytes, header.max_timestamp)
    elif position == last_position:  # the batch of that entry: the times after it begin with its own
        index.upto = position + header.size_bytes
        index.max_timestamp = max(index.max_timestamp, header.max_timestamp)
