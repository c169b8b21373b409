"""The two passes of a cleaning over the files of its segments: everything that takes long.

It opens no file and knows nothing of the log's state, so that it may run beside the log, in another process too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from logboom.base.ids import Epoch, Offset
from logboom.base.ports import File
from logboom.storage.compaction.dirty_section import DirtySection
from logboom.storage.compaction.record_filter import FilterCounts, RecordFilter, Verdict
from logboom.storage.compaction.segment_writer import SegmentWriter
from logboom.storage.compaction.settings import CompactionSettings
from logboom.storage.compaction.source import Source, checked_reads
from logboom.storage.epochs import EpochHistory
from logboom.storage.segment import SparseIndex


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What the passes need to know about the log."""

    first_dirty_offset: Offset
    epochs: tuple[tuple[Epoch, Offset], ...]
    """Leader epochs and where each begins."""
    settings: CompactionSettings
    remembered: frozenset[int]
    """Base offsets of the batches from which an idempotent producer's state is rebuilt."""
    now_ms: int
    max_decompressed_bytes: int
    index_interval_bytes: int


@dataclass(frozen=True, slots=True)
class Written:
    """What the second pass made of some segments."""

    size_bytes: int
    """Of the file that replaces them."""
    written_bytes: int
    """0 where nothing changed, and there is no file."""
    index: SparseIndex
    counts: FilterCounts


class Files(Protocol):
    """The files of one step, and callbacks for its progress. Its methods may raise any error, which ends the step."""

    def source(self, number: int) -> File:
        """The open file of that source, which stays the caller's."""

    def target(self) -> File:
        """The file to write, created now; the caller closes it."""

    def did_read(self, size_bytes: int) -> None:
        """So many bytes were read."""

    def did_write(self, size_bytes: int) -> None:
        """So many bytes were written."""


class Passes(Protocol):
    """Both passes over one log: `read` until it says that the dirty section has ended, then `write`.

    Raises BadBatchError where a batch is damaged, StorageError where one cannot be opened, OSError, and what `Files`
    does.
    """

    def read(self, source: Source, files: Files) -> tuple[Offset, bool]:
        """Read the next segment of the dirty section: up to where it is known now, and whether more can be."""

    def write(self, sources: Sequence[Source], files: Files) -> Written:
        """Write what is to take the place of these segments, which follow each other, and sync it."""

    def close(self) -> None:
        """Give back the memory."""


StartPasses = Callable[[CompactionPlan, int], Passes]
"""Begin the passes of a plan over this many bytes."""


class FilePasses:
    """The passes themselves."""

    def __init__(self, plan: CompactionPlan) -> None:
        self._plan = plan
        self._epoch_at = EpochHistory(plan.epochs).at
        self._dirty: DirtySection | None = DirtySection(plan.first_dirty_offset, plan.settings.map_bytes)

    def read(self, source: Source, files: Files) -> tuple[Offset, bool]:
        dirty = self._known
        more = dirty.read(
            source,
            files.source(0),
            self._epoch_at,
            files.did_read,
            max_decompressed_bytes=self._plan.max_decompressed_bytes,
        )
        return dirty.end, more

    @property
    def _known(self) -> DirtySection:
        assert self._dirty is not None, "the passes were closed"
        return self._dirty

    def write(self, sources: Sequence[Source], files: Files) -> Written:
        plan = self._plan
        record_filter = RecordFilter(
            self._known,
            plan.settings,
            remembered=plan.remembered,
            now_ms=plan.now_ms,
            max_decompressed_bytes=plan.max_decompressed_bytes,
        )
        only = files.source(0) if len(sources) == 1 else None
        writer = SegmentWriter(files.target, only, plan.index_interval_bytes, files.did_write)
        for number, source in enumerate(sources):
            file = only or files.source(number)
            reads = checked_reads(source, file, source.first_offset, self._epoch_at, files.did_read)
            for batches in reads:
                for batch, verdict in zip(batches, record_filter.judge(batches, source), strict=True):
                    if verdict is Verdict.KEEP:
                        writer.copy(batch)
                    elif verdict is Verdict.REMOVE:
                        writer.remove(batch)
                    else:
                        writer.replace(verdict)
        writer.finish()
        return Written(writer.size_bytes, writer.written_bytes, writer.index, record_filter.counts)

    def close(self) -> None:
        self._dirty = None  # the key map may be large


def in_this_process(plan: CompactionPlan, size_bytes: int) -> Passes:
    """`StartPasses` on the thread that calls it."""
    return FilePasses(plan)
