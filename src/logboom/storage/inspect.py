"""Reading a log's directory without being its owner, for `logboom log`: nothing is written, repaired or locked.

The broker may be running, or have been killed. What is wrong below the durable end is damage. Behind it lies a tail,
which recovery would keep as far as its batches are whole.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, TypeAlias

from logboom.base.ids import NO_EPOCH, Epoch, Offset
from logboom.base.ports import Disk, File
from logboom.base.units import MIB
from logboom.records import HEADER_BYTES, BatchHeader, read_header
from logboom.storage import checkpoint as checkpoints
from logboom.storage import epochs as epoch_files
from logboom.storage.checkpoint import Checkpoint
from logboom.storage.config import Damage, Notice
from logboom.storage.files import is_known, offset_in, replacement_in
from logboom.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SALVAGE_BYTES,
    EpochAt,
    SparseIndex,
    batch_fault,
    file_stem,
    salvage,
)
from logboom.storage.small_files import read_auxiliary
from logboom.storage.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from logboom.storage.snapshots import snapshot_is_good

_WINDOW_BYTES: Final = MIB
_LOOKS: Final = 10


@dataclass(frozen=True, slots=True)
class SegmentView:
    """One segment as it was found."""

    path: str
    index_path: str
    base: Offset
    limit: Offset
    """Up to where its offsets must reach: the next segment's base, or the durable end."""
    sure_bytes: int
    """Bytes that are below the durable end."""
    size_bytes: int
    """Length of the file; behind the last batch there may be room that was reserved."""


@dataclass(frozen=True, slots=True)
class BatchView:
    """One whole, checked batch and where it lies."""

    path: str
    position: int
    header: BatchHeader
    data: bytes


@dataclass(frozen=True, slots=True)
class LogTotals:
    """What was found good in a log."""

    segments: int
    batches: int
    records: int
    size_bytes: int
    start: Offset
    durable_end: Offset
    tail_records: int
    """Records behind the durable end that are whole; not acknowledged as synced, and kept by recovery."""


Found: TypeAlias = BatchView | Damage


class LogView:
    """What a directory held when it was looked at. Raises OSError where it cannot be read; is never closed."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        known, names = self._look()
        self.checkpoint = known
        files = _segment_files(names)
        bases = [base for base, _ in files]
        history = epoch_files.load(disk, directory)
        if history is not None and known is not None and history.latest < known.latest_epoch:
            history = None
        self.has_epochs = history is not None
        self._epoch_at: EpochAt = history.at if history is not None else _no_epoch
        self.names = names
        self.durable_end = known.durable_end if known else max(bases, default=Offset(0))
        self.start = known.log_start if known else min(bases, default=Offset(0))
        self.segments = self._views(files)

    def _look(self) -> tuple[Checkpoint | None, list[str]]:
        """Checkpoint and names of one moment: a running broker may roll or delete segments between two looks."""
        known = checkpoints.load(self.disk, self.directory)
        for _ in range(_LOOKS):
            names, before = self.disk.list(self.directory), known
            known = checkpoints.load(self.disk, self.directory)
            if before and known and (before.segment, before.log_start) == (known.segment, known.log_start):
                return before, names
        return known, names

    def _views(self, files: list[tuple[Offset, str]]) -> tuple[SegmentView, ...]:
        views = []
        for (base, name), following in zip_longest(files, files[1:]):
            path, follower = f"{self.directory}/{name}", following[0] if following else None
            try:
                size = self.disk.size(path)
            except FileNotFoundError:
                continue
            sure, limit = self._sure(base, size, follower)
            index_path = f"{self.directory}/{file_stem(base)}{INDEX_SUFFIX}"
            views.append(SegmentView(path, index_path, base, limit, sure, size))
        return tuple(views)

    def _sure(self, base: Offset, size: int, follower: Offset | None) -> tuple[int, Offset]:
        known = self.checkpoint
        if known is None:
            return (0, base) if follower is None else (size, follower)
        if base > known.segment:
            return 0, base
        if base == known.segment:
            return min(known.position, size), known.durable_end
        return size, known.durable_end if follower is None else follower

    # --- below the durable end -------------------------------------------------------------------------------------

    def batches(self, start: Offset | None = None) -> Iterator[Found]:
        """Every batch below the durable end that reaches above `start`, in order, and each stretch of damage."""
        wanted = self.start if start is None else start
        yield from self._missing_files()
        for segment in self.segments:
            if not segment.sure_bytes or segment.limit <= wanted:
                continue
            for found in self._segment(segment, wanted):
                if isinstance(found, Damage) and self._was_compacted(segment):
                    # A running broker put another file in its place, perhaps in the place of those behind it too.
                    yield from LogView(self.disk, self.directory).batches(wanted)
                    return
                yield found
                if isinstance(found, BatchView):
                    wanted = found.header.next_offset

    def _was_compacted(self, segment: SegmentView) -> bool:
        """Whether a complete segment is not the file any more that was looked at, though it was not deleted."""
        if segment is self.segments[-1]:
            return False
        try:
            return self.disk.size(segment.path) != segment.size_bytes
        except FileNotFoundError:
            now = checkpoints.load(self.disk, self.directory)
            is_retained = now is None or now.log_start < segment.limit
            return is_retained and _segment_files(self.disk.list(self.directory)) != _segment_files(self.names)

    def _missing_files(self) -> Iterator[Damage]:
        known = self.checkpoint
        if self.segments and self.segments[0].base > self.start:
            first = self.segments[0].base
            yield Damage(self.directory, 0, self.start, f"the segments before offset {first} are missing")
        if known is None or known.durable_end == known.log_start:
            return
        last = next((segment for segment in self.segments if segment.base == known.segment), None)
        if last is None:
            yield Damage(self.directory, 0, known.segment, f"the segment {file_stem(known.segment)} is missing")
        elif last.sure_bytes < known.position:
            reason = f"the file ends before its durable end at byte {known.position}"
            yield Damage(last.path, last.size_bytes, None, reason)

    def _segment(self, segment: SegmentView, wanted: Offset) -> Iterator[Found]:
        try:
            file = self.disk.open(segment.path)
        except FileNotFoundError:
            now = checkpoints.load(self.disk, self.directory)
            if now is None or now.log_start < segment.limit:
                yield Damage(segment.path, 0, segment.base, "the file is missing")
            return  # else retention was here first
        try:
            position, offset = self._entry(segment, wanted, file)
            for found in self._walk(segment, file, position, offset):
                if isinstance(found, Damage) or found.header.next_offset > wanted:
                    yield found
        finally:
            file.close()

    def _entry(self, segment: SegmentView, wanted: Offset, file: File) -> tuple[int, Offset]:
        """Where to begin for an offset: at a good batch that the index knows, or at the segment's begin."""
        if wanted > segment.base:
            index = self.index_of(segment)
            entry = None if index is None else index.floor(wanted)
            if entry is not None and entry[1] < segment.sure_bytes:
                offset, position = entry
                first = next(self._walk(segment, file, position, offset), None)
                if isinstance(first, BatchView):
                    return position, offset
        return 0, segment.base

    def index_of(self, segment: SegmentView) -> SparseIndex | None:
        """A segment's index as far as its file is right."""

        def load(data: bytes) -> SparseIndex | None:
            return SparseIndex.load(data, 1, segment.base, segment.size_bytes)

        return read_auxiliary(self.disk, segment.index_path, load, None)

    def should_have_index(self, segment: SegmentView) -> bool:
        """Whether a segment's index is complete on the disk by now, and the segment still there.

        It is written when the segment has ended, which is before the checkpoint names the next one; retention removes
        it behind the segment itself.
        """
        behind = self.segments[-1].base if self.checkpoint is None else self.checkpoint.segment
        return segment.base < behind and self.disk.exists(segment.path)

    def _walk(self, segment: SegmentView, file: File, position: int, expected: Offset) -> Iterator[Found]:
        end = segment.sure_bytes
        window = _Window(file, end)
        while position < end:
            fault, header = self._fault(window, position, expected, end)
            if header is not None and fault is None:
                yield BatchView(segment.path, position, header, window.cut(position, header.size_bytes))
                position, expected = position + header.size_bytes, header.next_offset
                continue
            good = self._next_good(file, position, expected, segment)
            behind = "nothing good follows in this file" if good is None else f"good again at byte {good[0]}"
            yield Damage(segment.path, position, expected, f"{fault}; {behind}")
            if good is None:
                return
            position, expected = good
        if expected < segment.limit:
            yield Damage(segment.path, end, expected, f"the offsets from here to {segment.limit} are missing")

    def _fault(
        self, window: "_Window", position: int, expected: Offset, end: int
    ) -> tuple[str | None, BatchHeader | None]:
        data = window.cut(position, HEADER_BYTES) if end - position >= HEADER_BYTES else b""
        if len(data) < HEADER_BYTES:  # a running broker may have given back reserved room since the size was read
            return "the file ends inside a batch", None
        header = read_header(data)
        size = header.size_bytes if HEADER_BYTES <= header.size_bytes <= end - position else HEADER_BYTES
        fault = batch_fault(window.cut(position, size), 0, header, expected, end - position, self._epoch_at)
        return fault, header

    def _next_good(
        self, file: File, position: int, expected: Offset, segment: SegmentView
    ) -> tuple[int, Offset] | None:
        start, end = position, segment.sure_bytes
        while start < end:
            data = file.read(start, min(SALVAGE_BYTES, end - start))
            for at, header in salvage(data, expected, segment.limit, self._epoch_at):
                return start + at, header.base_offset
            if len(data) < SALVAGE_BYTES:
                return None
            start += SALVAGE_BYTES // 2
        return None

    # --- behind the durable end -----------------------------------------------------------------------------------

    def tail(self) -> Iterator[BatchView]:
        """The whole batches behind the durable end; a running broker may be writing the next one."""
        expected = self.durable_end
        for segment in self.segments:
            if segment.sure_bytes == segment.size_bytes or segment.limit < expected:
                continue
            try:
                file = self.disk.open(segment.path)
            except FileNotFoundError:  # retention was here first
                continue
            try:
                position, window = segment.sure_bytes, _Window(file, segment.size_bytes)
                while position < segment.size_bytes:
                    fault, header = self._fault(window, position, expected, segment.size_bytes)
                    if fault is not None or header is None:
                        break
                    yield BatchView(segment.path, position, header, window.cut(position, header.size_bytes))
                    position, expected = position + header.size_bytes, header.next_offset
            finally:
                file.close()

    def notices(self) -> Iterator[Notice]:
        """What needs no action: auxiliary files that are going to be made again, and files that are not a log's."""
        if self.checkpoint is None and any(segment.size_bytes for segment in self.segments):
            yield Notice(
                f"{self.directory}/{checkpoints.NAME}", "is missing or garbled; the last segment is taken as tail"
            )
        if not self.has_epochs and any(segment.sure_bytes for segment in self.segments):
            yield Notice(f"{self.directory}/{epoch_files.NAME}", "is missing, garbled or old and will be made again")
        for name in self.names:
            path = f"{self.directory}/{name}"
            snapshot_offset = offset_in(name, SNAPSHOT_SUFFIX)
            if not is_known(name):
                yield Notice(path, "is no file of a log")
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


class _Window:
    """Bytes of a file, read ahead; nothing from `end` on."""

    def __init__(self, file: File, end: int) -> None:
        self._file, self._end = file, end
        self._start, self._data = 0, b""

    def cut(self, position: int, length: int) -> bytes:
        at = position - self._start
        if at < 0 or at + length > len(self._data):
            self._data = self._file.read(position, min(max(length, _WINDOW_BYTES), self._end - position))
            self._start, at = position, 0
        return self._data[at : at + length]


class _IndexCheck:
    """Whether the entries of an index name batches that are there."""

    def __init__(self, index: SparseIndex, segment: SegmentView) -> None:
        entries = zip(index.positions, index.offsets, strict=True)
        self._entries = iter([entry for entry in entries if entry[0] < segment.sure_bytes])
        self._next = next(self._entries, None)
        self.path = segment.index_path
        self.wrong = 0

    def saw(self, position: int, offset: Offset) -> None:
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
    # The whole segment that the log begins in, so that its index can be held against it.
    begin = max((segment.base for segment in view.segments if segment.base <= view.start), default=view.start)
    for found in view.batches(begin):
        if found.path != path:
            _finish(check, report)
            path, segment = found.path, segments.get(found.path)
            check = None if segment is None else _index_check(view, segment, report)
        if isinstance(found, Damage):
            check = None  # entries that lead into it are no news
            report(found)
            continue
        header = found.header
        batches, records, size_bytes = batches + 1, records + header.records_count, size_bytes + header.size_bytes
        if check is not None:
            check.saw(found.position, Offset(header.base_offset))
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
