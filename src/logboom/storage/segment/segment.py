"""A segment put together from its parts."""

from collections.abc import Callable
from typing import Final

from logboom.base.ids import Offset
from logboom.base.ports import Disk
from logboom.storage.config import Damage, Notice
from logboom.storage.open_files import OpenFiles
from logboom.storage.segment.directory import LogDirectory
from logboom.storage.segment.file import SegmentFile
from logboom.storage.segment.index_file import SegmentIndex
from logboom.storage.segment.reader import SegmentReader
from logboom.storage.segment.scan import EpochAt
from logboom.storage.segment.walker import SegmentWalker

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"


def file_stem(offset: Offset) -> str:
    """Twenty digits, so that names sort as offsets do."""
    return f"{offset:020d}"


class Segment:
    """The parts, the facts that the log asks for, and what is done to file and index together."""

    __slots__ = ("file", "index", "reader", "walker")

    def __init__(
        self,
        disk: Disk,
        directory: LogDirectory,
        base: Offset,
        interval_bytes: int,
        epoch_at: EpochAt,
        report: Callable[[Damage | Notice], None],
        open_files: OpenFiles,
    ) -> None:
        stem = file_stem(base)
        self.file = SegmentFile(directory, stem + LOG_SUFFIX, base, open_files)
        self.walker = SegmentWalker(self.file, epoch_at, report)
        self.index = SegmentIndex(disk, directory, stem + INDEX_SUFFIX, self.file, self.walker, interval_bytes, report)
        self.reader = SegmentReader(self.file, self.index, self.walker)

    @property
    def base(self) -> Offset:
        """Its first offset."""
        return self.file.base

    @property
    def end(self) -> Offset | None:
        """First offset of the next segment; None while this is the last one."""
        return self.file.end

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def size_bytes(self) -> int:
        """Bytes of its batches."""
        return self.file.size_bytes

    @property
    def max_timestamp(self) -> int:
        """Newest time of all batches, negative where none has one. May wait for the disk."""
        return self.index.max_timestamp

    def create(self) -> None:
        """Make an empty segment, in place of one that a failed attempt may have left."""
        self.file.create()
        self.index.start_empty()

    def shorten(self, position: int) -> None:
        """Remove the batches from `position` on, durably; this is the last segment now."""
        self.file.size_bytes = position
        self.walker.forget_damage(position)
        self.index.shorten(position)
        self.file.cut()
        self.file.sync()
        self.index.rewrite()

    def retire(self) -> None:
        """A compacted segment takes its place. What still reads this one goes on, and its files are not written to."""
        self.file.retire()
        self.index.retire()

    def remove(self) -> None:
        """Remove both files. The log first: recovery removes an index without one, and not the other way round.

        A thread that reads the index does not write it any more, since another segment may have its name soon.
        """
        self.index.retire()
        self.file.remove()
        self.index.remove()
