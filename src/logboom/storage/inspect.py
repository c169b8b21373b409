"""Read-only inspection of a log's directory, for `logboom log`: nothing is written, repaired or locked.

The broker may be running, or may have been killed. What is wrong below the durable end is damage. Above it lies the
tail, of which recovery keeps the batches up to the first one that is not valid.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, TypeAlias

from logboom.base.ids import NO_EPOCH, Epoch, Offset
from logboom.base.ports import Disk, File
from logboom.records import BatchHeader
from logboom.storage import checkpoint as checkpoints
from logboom.storage import epochs as epoch_files
from logboom.storage.checkpoint import Checkpoint
from logboom.storage.config import Damage, Notice
from logboom.storage.files import is_known, offset_in, replacement_in
from logboom.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    CheckedBatch,
    EpochAt,
    SegmentCheck,
    SparseIndex,
    file_stem,
)
from logboom.storage.small_files import read_auxiliary
from logboom.storage.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from logboom.storage.snapshots import snapshot_is_good

_SNAPSHOT_ATTEMPTS: Final = 10
"""How often checkpoint and names are read again while a running broker changes them."""


@dataclass(frozen=True, slots=True)
class SegmentView:
    """One segment as it was when the directory was read."""

    path: str
    index_path: str
    base: Offset
    limit: Offset
    """The offset that its last batch must end at: the next segment's base, or the durable end."""
    durable_bytes: int
    """How many of its bytes are below the durable end."""
    size_bytes: int
    """Length of the file; after the last batch there may be preallocated space."""


@dataclass(frozen=True, slots=True)
class BatchView:
    """One valid batch and its position in the file."""

    path: str
    position: int
    header: BatchHeader
    data: bytes


@dataclass(frozen=True, slots=True)
class LogTotals:
    """What is valid in a log."""

    segments: int
    batches: int
    records: int
    size_bytes: int
    start: Offset
    durable_end: Offset
    tail_records: int
    """Valid records above the durable end; not acknowledged as synced, and kept by recovery."""


Found: TypeAlias = BatchView | Damage


class LogView:
    """A log's directory at one moment.

    Raises OSError where it cannot be read; keeps no handles, so needs no close.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        checkpoint, names = self._snapshot()
        self.checkpoint = checkpoint
        files = _segment_files(names)
        bases = [base for base, _ in files]
        history = epoch_files.load(disk, directory)
        if history is not None and checkpoint is not None and history.latest < checkpoint.latest_epoch:
            history = None
        self.has_epochs = history is not None
        self._epoch_at: EpochAt = history.at if history is not None else _no_epoch
        self.names = names
        self.durable_end = checkpoint.durable_end if checkpoint else max(bases, default=Offset(0))
        self.start = checkpoint.log_start if checkpoint else min(bases, default=Offset(0))
        self.segments = self._views(files)

    def _snapshot(self) -> tuple[Checkpoint | None, list[str]]:
        """A checkpoint and the names that belong to it: a running broker may roll or delete segments in between."""
        checkpoint = checkpoints.load(self.disk, self.directory)
        for _ in range(_SNAPSHOT_ATTEMPTS):
            names, before = self.disk.list(self.directory), checkpoint
            checkpoint = checkpoints.load(self.disk, self.directory)
            if (
                before
                and checkpoint
                and (before.segment, before.log_start) == (checkpoint.segment, checkpoint.log_start)
            ):
                return before, names
        return checkpoint, names

    def _views(self, files: list[tuple[Offset, str]]) -> tuple[SegmentView, ...]:
        views = []
        for (base, name), following in zip_longest(files, files[1:]):
            path, next_base = f"{self.directory}/{name}", following[0] if following else None
            try:
                size = self.disk.size(path)
            except FileNotFoundError:
                continue
            durable_bytes, limit = self._durable_part(base, size, next_base)
            index_path = f"{self.directory}/{file_stem(base)}{INDEX_SUFFIX}"
            views.append(SegmentView(path, index_path, base, limit, durable_bytes, size))
        return tuple(views)

    def _durable_part(self, base: Offset, size: int, next_base: Offset | None) -> tuple[int, Offset]:
        checkpoint = self.checkpoint
        if checkpoint is None:
            return (0, base) if next_base is None else (size, next_base)
        if base > checkpoint.segment:
            return 0, base
        if base == checkpoint.segment:
            return min(checkpoint.position, size), checkpoint.durable_end
        return size, checkpoint.durable_end if next_base is None else next_base

    # --- below the durable end -------------------------------------------------------------------------------------

    def batches(self, start: Offset | None = None) -> Iterator[Found]:
        """Every batch below the durable end that reaches above `start`, in order, and each stretch of damage."""
        start_offset = self.start if start is None else start
        yield from self._missing_files()
        for segment in self.segments:
            if not segment.durable_bytes or segment.limit <= start_offset:
                continue
            for found in self._segment(segment, start_offset):
                if isinstance(found, Damage) and self._was_compacted(segment):
                    # A running broker has replaced it by a compacted segment, and perhaps the following ones too.
                    yield from LogView(self.disk, self.directory).batches(start_offset)
                    return
                yield found
                if isinstance(found, BatchView):
                    start_offset = found.header.next_offset

    def _was_compacted(self, segment: SegmentView) -> bool:
        """Whether a segment may not be the file any more that was looked at, though it was not deleted."""
        if segment is self.segments[-1]:
            # It was written to then, and only one that has ended since can have been compacted.
            files = _segment_files(self.disk.list(self.directory))
            return bool(files) and files[-1][0] > segment.base
        try:
            return self.disk.size(segment.path) != segment.size_bytes
        except FileNotFoundError:
            now = checkpoints.load(self.disk, self.directory)
            is_retained = now is None or now.log_start < segment.limit
            return is_retained and _segment_files(self.disk.list(self.directory)) != _segment_files(self.names)

    def _begins_at(self, offset: Offset) -> bool:
        """Whether a running broker has deleted what was below, since the names of the files were read."""
        now = checkpoints.load(self.disk, self.directory)
        return now is not None and now.log_start >= offset

    def _missing_files(self) -> Iterator[Damage]:
        checkpoint = self.checkpoint
        first = self.segments[0].base if self.segments else self.start
        if first > self.start and not self._begins_at(first):
            yield Damage(self.directory, 0, self.start, f"the segments before offset {first} are missing")
        if checkpoint is None or checkpoint.durable_end == checkpoint.log_start:
            return
        last = next((segment for segment in self.segments if segment.base == checkpoint.segment), None)
        if last is None:
            yield Damage(
                self.directory, 0, checkpoint.segment, f"the segment {file_stem(checkpoint.segment)} is missing"
            )
        elif last.durable_bytes < checkpoint.position:
            reason = f"the file ends before its durable end at byte {checkpoint.position}"
            yield Damage(last.path, last.size_bytes, None, reason)

    def _segment(self, segment: SegmentView, start_offset: Offset) -> Iterator[Found]:
        try:
            file = self.disk.open(segment.path)
        except FileNotFoundError:
            now = checkpoints.load(self.disk, self.directory)
            if now is None or now.log_start < segment.limit:
                yield Damage(segment.path, 0, segment.base, "the file is missing")
            return  # else retention has removed it meanwhile
        try:
            position, offset = self._start_position(segment, start_offset, file)
            for found in self._walk(segment, file, position, offset):
                if isinstance(found, Damage) or found.header.next_offset > start_offset:
                    yield found
        finally:
            file.close()

    def _start_position(self, segment: SegmentView, start_offset: Offset, file: File) -> tuple[int, Offset]:
        """Position and offset to read from: of a valid batch that the index has, or of the segment's start."""
        if start_offset > segment.base:
            index = self.index_of(segment)
            entry = None if index is None else index.floor(start_offset)
            if entry is not None and entry[1] < segment.durable_bytes:
                offset, position = entry
                first = next(self._walk(segment, file, position, offset), None)
                if isinstance(first, BatchView):
                    return position, offset
        return 0, segment.base

    def index_of(self, segment: SegmentView) -> SparseIndex | None:
        """A segment's index, None where its file is missing or invalid."""

        def load(data: bytes) -> SparseIndex | None:
            return SparseIndex.load(data, 1, segment.base, segment.size_bytes)

        return read_auxiliary(self.disk, segment.index_path, load, None)

    def should_have_index(self, segment: SegmentView) -> bool:
        """Whether a segment's index is complete on the disk by now, and the segment still there.

        It is written when the segment has ended, before the checkpoint names the next one; retention removes it after
        the segment itself.
        """
        newest = self.segments[-1].base if self.checkpoint is None else self.checkpoint.segment
        return segment.base < newest and self.disk.exists(segment.path)

    def _walk(self, segment: SegmentView, file: File, position: int, expected: Offset) -> Iterator[Found]:
        for found in self._check(segment, file, segment.durable_bytes).walk(position, expected):
            yield found if isinstance(found, Damage) else _view(segment, found)

    def _check(self, segment: SegmentView, file: File, end: int) -> SegmentCheck:
        return SegmentCheck(file, segment.path, end=end, limit=segment.limit, epoch_at=self._epoch_at)

    # --- above the durable end -----------------------------------------------------------------------------------

    def tail(self) -> Iterator[BatchView]:
        """The valid batches above the durable end; a running broker may be writing the next one."""
        expected = self.durable_end
        for segment in self.segments:
            if segment.durable_bytes == segment.size_bytes or segment.limit < expected:
                continue
            try:
                file = self.disk.open(segment.path)
            except FileNotFoundError:  # retention has removed it meanwhile
                continue
            try:
                position, check = segment.durable_bytes, self._check(segment, file, segment.size_bytes)
                while position < segment.size_bytes:
                    found = check.batch_at(position, expected)
                    if isinstance(found, str):
                        break
                    yield _view(segment, found)
                    position, expected = position + found.header.size_bytes, found.header.next_offset
            finally:
                file.close()

    def notices(self) -> Iterator[Notice]:
        """What needs no action: auxiliary files that will be rebuilt, and files that do not belong to a log."""
        if self.checkpoint is None and any(segment.size_bytes for segment in self.segments):
            yield Notice(
                f"{self.directory}/{checkpoints.NAME}", "is missing or garbled; the last segment is taken as tail"
            )
        if not self.has_epochs and any(segment.durable_bytes for segment in self.segments):
            yield Notice(f"{self.directory}/{epoch_files.NAME}", "is missing, garbled or old and will be made again")
        for name in self.names:
            path = f"{self.directory}/{name}"
            snapshot_offset = offset_in(name, SNAPSHOT_SUFFIX)
            if not is_known(name):
                yield Notice(path, "is not a file of a log")
            elif snapshot_offset is not None and not snapshot_is_good(self.disk, path, snapshot_offset):
                yield Notice(path, "is garbled or unreadable and will not be used")


def _segment_files(names: Sequence[str]) -> list[tuple[Offset, str]]:
    """Base and name of the file of each segment, oldest first. A compacted one may not have its own name yet, and those
    that it replaces may be there still: see `compaction.swap`."""
    swaps = [replacement for name in names if (replacement := replacement_in(name)) is not None]
    files = [(replacement.first, replacement.swap_name) for replacement in swaps]
    for name in names:
        base = offset_in(name, LOG_SUFFIX)
        if base is not None and not any(replacement.covers(base) for replacement in swaps):
            files.append((base, name))
    return sorted(files)


def _view(segment: SegmentView, batch: CheckedBatch) -> BatchView:
    return BatchView(segment.path, batch.position, batch.header, batch.data)


class _IndexCheck:
    """Counts the entries of an index that name no batch."""

    def __init__(self, index: SparseIndex, segment: SegmentView) -> None:
        entries = zip(index.positions, index.offsets, strict=True)
        self._entries = iter([entry for entry in entries if entry[0] < segment.durable_bytes])
        self._next = next(self._entries, None)
        self.path = segment.index_path
        self.wrong = 0

    def on_batch(self, position: int, offset: Offset) -> None:
        while self._next is not None and self._next[0] <= position:
            self.wrong += self._next != (position, offset)
            self._next = next(self._entries, None)


def _no_epoch(offset: Offset) -> Epoch:
    return NO_EPOCH


def verify(
    view: LogView, report: Callable[[Damage | Notice], None], progress: Callable[[int], None] = lambda done: None
) -> LogTotals:
    """Read and check everything below the durable end; damage and notices go to `report`, bytes done to `progress`."""
    batches = records = size_bytes = 0
    segments = {segment.path: segment for segment in view.segments}
    path, check = "", None
    # From the start of the segment that holds the log start, so that its index can be compared with all its batches.
    begin = max((segment.base for segment in view.segments if segment.base <= view.start), default=view.start)
    for found in view.batches(begin):
        if found.path != path:
            _finish(check, report)
            path, segment = found.path, segments.get(found.path)
            check = None if segment is None else _index_check(view, segment, report)
        if isinstance(found, Damage):
            check = None  # index entries that point into damage are not worth a notice of their own
            report(found)
            continue
        header = found.header
        batches, records, size_bytes = batches + 1, records + header.records_count, size_bytes + header.size_bytes
        if check is not None:
            check.on_batch(found.position, Offset(header.base_offset))
        progress(header.size_bytes)
    _finish(check, report)
    for notice in view.notices():
        report(notice)
    tail = sum(found.header.records_count for found in view.tail())
    return LogTotals(len(view.segments), batches, records, size_bytes, view.start, view.durable_end, tail)


def _index_check(view: LogView, segment: SegmentView, report: Callable[[Damage | Notice], None]) -> _IndexCheck | None:
    index = view.index_of(segment)
    if index is not None:
        return _IndexCheck(index, segment)
    if view.should_have_index(segment):
        report(Notice(segment.index_path, "is missing or garbled and will be made again"))
    return None


def _finish(check: _IndexCheck | None, report: Callable[[Damage | Notice], None]) -> None:
    if check is not None and check.wrong:
        report(Notice(check.path, f"has {check.wrong} wrong entries and will be made again"))
