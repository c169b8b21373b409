"""Driver side of the Parquet archive: writes and commits batches, and compacts between them.

Knows Spark's mapInArrow, the archive and the compactor. Must not know queries, attempts or dead letters.
"""

from typing import Final

import msgspec
from pyspark.sql import DataFrame

from logboom.pipeline.sinks.base import BaseWriter, Delivered, SinkContext
from logboom.pipeline.sinks.parquet import ParquetSink
from logboom.pipeline.sinks.parquet.archive import NOTHING, Archive
from logboom.pipeline.sinks.parquet.compaction import QUIET_S, Compactor
from logboom.pipeline.sinks.parquet.object_archive import ObjectArchive
from logboom.pipeline.sinks.parquet.staging import REPORT_COLUMN, ArchiveWriter, Report
from logboom.pipeline.sinks.repeats.batch_dead_letters import BatchLetters
from logboom.pipeline.sinks.repeats.identity import delivery_id

_ALL: Final = 1_000_000


def open_archive(sink: ParquetSink, context: SinkContext) -> "ArchiveDelivery":
    """Open the archive of a sink, under the identity from its checkpoint."""
    owner = delivery_id(context.checkpoint)
    if sink.store is not msgspec.UNSET:
        return ArchiveDelivery(sink, ObjectArchive(sink.store, owner), context)
    return ArchiveDelivery(sink, Archive(context.resolve(sink.path), owner), context)


class ArchiveDelivery(BaseWriter):
    """Writes the archive: tasks stage files, the driver commits them."""

    def __init__(self, sink: ParquetSink, archive: Archive | ObjectArchive, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._letters = BatchLetters(context.write_dead_letters)
        self._archive = archive
        self._compactor: Compactor | None = None
        """None for object stores, which have no atomic exchange of directories."""
        if isinstance(archive, Archive):
            self._compactor = Compactor(archive.root, target_bytes=sink.target_file_bytes, compression=sink.compression)

    @property
    def archive(self) -> Archive | ObjectArchive:
        """The committed state."""
        return self._archive

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        with self._letters.attempt(batch):
            return self._delivered(rows, batch)

    def left(self, rows: DataFrame, batch: int) -> DataFrame:
        """No records if the batch is committed, even if some files are not in place yet; they will be before the next
        batch."""
        return rows.limit(0) if batch <= self._archive.state.batch else self._letters.left(rows, batch)

    def _delivered(self, rows: DataFrame, batch: int) -> Delivered:
        settled = self._archive.settle() or NOTHING
        if batch <= self._archive.state.batch:  # committed, but the query had not recorded it
            return Delivered(self._sink.name, batch, rows=settled.rows, repeats=settled.repeats)
        writer = ArchiveWriter(
            sink=self._sink,
            root=str(self._archive.root),
            staging=self._archive.staging_for(batch),
            label=f"{self._archive.owner}-{batch}",
            high_water=self._archive.state.high_water,
            retried=self._archive.state.retried,
            store=self._archive.store if isinstance(self._archive, ObjectArchive) else None,
        )
        told = rows.mapInArrow(writer, f"{REPORT_COLUMN} binary").collect()
        reports = [msgspec.json.decode(bytes(row[0]), type=Report) for row in told]
        dead = self._letters.write([record for report in reports for record in report.unreadable])
        manifest = self._archive.commit(batch, reports)
        # A batch that was given up before its files were in place is counted with the next one.
        rows_now, repeats_now = manifest.rows + settled.rows, manifest.repeats + settled.repeats
        return Delivered(self._sink.name, batch, rows=rows_now, repeats=repeats_now, dead=dead)

    def idle(self) -> None:
        """Compact at most one finished directory."""
        self._compact(quiet_s=QUIET_S, directories_max=1)

    def finish(self) -> None:
        """Compact all directories, finished or not, at the end of a run."""
        self._compact(quiet_s=0.0, directories_max=_ALL)

    def _compact(self, *, quiet_s: float, directories_max: int) -> None:
        if self._compactor is None:
            return
        try:
            self._compactor.run(quiet_s=quiet_s, directories_max=directories_max)
        except OSError as error:
            # The archive is complete without compaction. A file system that cannot exchange directories never will.
            self._compactor = None
            self._context.notify(f"{self._sink.name}: small files are left as they are: {error}")
