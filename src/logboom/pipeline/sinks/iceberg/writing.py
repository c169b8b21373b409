"""Executor side of the Iceberg sink: reads events as JSON, writes data files without a snapshot, and reports them.

Knows Arrow and the JSON form of an event. Must not know Spark, partitions or how files are committed.
"""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadataUtil

from logboom.base.units import MIB
from logboom.pipeline.sinks.iceberg import IcebergColumn
from logboom.pipeline.sinks.iceberg.catalogs import prepare_files
from logboom.pipeline.sinks.iceberg.columns import with_columns
from logboom.pipeline.sinks.iceberg.data_files import DataFileWriter
from logboom.pipeline.sinks.repeats.new_events import FreshEvents, PartReport, Seen

REPORT_COLUMN: Final = "report"
_BUFFER_MAX_BYTES: Final = 96 * MIB


class IcebergReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one task about its part of a batch."""

    part: PartReport
    files: bytes
    """A pickled list of pyiceberg's `DataFile`, whose only other serialisation is a manifest."""

    def data_files(self) -> list[DataFile]:
        """Number of rows that the task wrote."""
        found: list[DataFile] = pickle.loads(self.files)  # noqa: S301 - our own task's
        return found


@dataclass(frozen=True, slots=True)
class IcebergWriter:
    """Write one partition of an edge's stream to data files. Called by executors."""

    metadata: str
    """The table's metadata, as JSON."""
    io: FileIO
    columns: tuple[IcebergColumn, ...]
    seen: Seen

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_files(self.io)
        fresh = FreshEvents(self.seen)
        writer = DataFileWriter(TableMetadataUtil.parse_raw(self.metadata), self.io)
        files: list[DataFile] = []
        for table in self._tables(fresh, batches):
            files += writer.write(table)
        report = msgspec.json.encode(IcebergReport(part=fresh.report(), files=pickle.dumps(files)))
        yield pa.RecordBatch.from_pydict({REPORT_COLUMN: pa.array([report], pa.binary())})

    def _tables(self, fresh: FreshEvents, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Events in chunks of limited size; each chunk makes one file for each of its partitions."""
        waiting: list[pa.Table] = []
        size = 0
        for batch in batches:
            for piece in fresh.read(batch):
                waiting.append(with_columns(piece.events, self.columns))
                size += piece.events.nbytes
                if size > _BUFFER_MAX_BYTES:
                    yield pa.concat_tables(waiting)
                    waiting, size = [], 0
        if waiting:
            yield pa.concat_tables(waiting)
