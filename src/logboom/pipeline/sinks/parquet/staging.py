"""Executor side of the Parquet archive: reads events as JSON, writes staged Parquet files, and reports them.

Knows Arrow, Parquet and the JSON form of an event. Must not know Spark or how files are committed. A file is staged
with a name that readers of the archive ignore, and synced before it is reported.
"""

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from logboom.base.units import MIB
from logboom.pipeline.plan.stores import StoreRef
from logboom.pipeline.sinks.parquet import ParquetSink
from logboom.pipeline.sinks.parquet.partitioning import by_directory
from logboom.pipeline.sinks.parquet.stores import open_store
from logboom.pipeline.sinks.parquet.writing import parquet_writer
from logboom.pipeline.sinks.repeats.new_events import FreshEvents, PartReport, Seen

STAGED_SUFFIX: Final = ".staged"
REPORT_COLUMN: Final = "report"
_BUFFER_MAX_BYTES: Final = 96 * MIB
_OPEN_FILES_MAX: Final = 64


class StagedFile(msgspec.Struct, frozen=True):
    """A staged file that waits to be committed. Both paths are relative to the archive."""

    staged: str
    final: str
    rows: int
    size_bytes: int


class Report(PartReport, frozen=True, kw_only=True):
    """The report of one task about its part of a batch."""

    files: tuple[StagedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ArchiveWriter:
    """Write one partition of an edge's stream to staged files. Called by executors."""

    sink: ParquetSink
    root: str
    """A local directory, or the path in `store`."""
    staging: str
    """Relative to `root`."""
    label: str
    """Prefix of the final names."""
    high_water: Mapping[str, int]
    retried: frozenset[str]
    store: StoreRef | None = None
    """The object store of the archive; None if it is local."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fresh = FreshEvents(Seen(high_water=dict(self.high_water), retried=self.retried))
        files = _Files(self)
        try:
            for batch in batches:
                for piece in fresh.read(batch):
                    files.add(piece.events)
            report = Report(**msgspec.structs.asdict(fresh.report()), files=tuple(files.finished()))
        finally:
            files.give_up()
        yield pa.RecordBatch.from_pydict({REPORT_COLUMN: pa.array([msgspec.json.encode(report)], pa.binary())})


class _Files:
    """The files of one task, one open file per directory, written from a buffer of limited size."""

    def __init__(self, job: ArchiveWriter) -> None:
        self._job = job
        self._waiting: dict[str, list[pa.Table]] = {}
        self._waiting_bytes = 0
        self._open: dict[str, _OpenFile] = {}
        self._done: list[StagedFile] = []

    def add(self, table: pa.Table) -> None:
        for directory, part in by_directory(table, self._job.sink.partition_by):
            self._waiting.setdefault(directory, []).append(part)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes > _BUFFER_MAX_BYTES:
            self._flush()

    def finished(self) -> list[StagedFile]:
        """Write, sync and close everything."""
        self._flush()
        while self._open:
            self._close_oldest()
        return self._done

    def give_up(self) -> None:
        """Close the open files after a failure; the disk may be full. Their content is not used."""
        for file in self._open.values():
            file.give_up()
        self._open.clear()

    def _close_oldest(self) -> None:
        oldest = next(iter(self._open))
        self._done.append(self._open[oldest].close())
        del self._open[oldest]

    def _flush(self) -> None:
        for directory, tables in self._waiting.items():
            if directory not in self._open:
                if len(self._open) >= _OPEN_FILES_MAX:
                    self._close_oldest()
                self._open[directory] = _OpenFile(self._job, directory, tables[0].schema)
            self._open[directory].write(pa.concat_tables(tables))
        self._waiting.clear()
        self._waiting_bytes = 0


class _OpenFile:
    def __init__(self, job: ArchiveWriter, directory: str, schema: pa.Schema) -> None:
        name = f"{job.label}-{uuid.uuid4().hex[:12]}.parquet"
        self._staged, self._final = f"{job.staging}/{name}{STAGED_SUFFIX}", f"{directory}/{name}"
        if job.store is None:
            self._file: _LocalFile | _Object = _LocalFile(Path(job.root, self._staged))
        else:
            self._file = _Object(job.store, f"{job.root}/{self._staged}")
        self._writer = parquet_writer(self._file.target, schema, job.sink.compression)
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)
        self._rows += table.num_rows

    def close(self) -> StagedFile:
        self._writer.close()
        return StagedFile(self._staged, self._final, self._rows, self._file.close())

    def give_up(self) -> None:
        """Close the file without finishing the Parquet footer, which the writer would otherwise try again when it is
        garbage collected."""
        self._writer.is_open = False
        with contextlib.suppress(OSError):
            self._file.target.close()


class _LocalFile:
    """A local file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self.target = pa.OSFile(str(path), "wb")

    def close(self) -> int:
        """Sync the file; returns its size in bytes."""
        self.target.close()
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size


class _Object:
    """An object of a store. It appears, complete, when it is closed."""

    def __init__(self, store: StoreRef, path: str) -> None:
        files, _ = open_store(store)
        self.target = files.open_output_stream(path)

    def close(self) -> int:
        """Return the object's size in bytes."""
        size_bytes: int = self.target.tell()
        self.target.close()
        return size_bytes
