"""The sink `parquet`: an archive of Parquet files that any reader of Parquet can read while it grows.

`delivery` runs on the driver and owns a batch from its rows to its commit. `staging` runs on the executors: it reads
the JSON of events back into columns (`pipeline.event.reading`), leaves out what was delivered before, and writes one
synced file (`writing`) for each directory (`partitioning`), under names that no reader takes for data. `archive` makes
staged files part of the archive, batch by batch, by one durable manifest; the manifest also holds the highest offset of
origin that was delivered, by which repeats are dropped. `compaction` merges the small files of directories that no
longer grow.

This module has what a pipeline's file and plan say of the sink and stays cheap to import; Arrow and Spark are imported
when it is opened.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from logboom.base.settings import SizeBytes
from logboom.base.units import MIB
from logboom.pipeline.plan.nodes import Sink
from logboom.pipeline.sinks.base import CommonFields, SinkContext, SinkModel, SinkReport, SinkType, SinkWriter

PartitionKey = Literal["date", "hour", "service", "stream", "source"]
Compression = Literal["zstd", "snappy", "gzip", "none"]
_TARGET_FILE_BYTES: Final = 128 * MIB


class ParquetSinkModel(SinkModel):
    """An archive of Parquet files."""

    type: Literal["parquet"]
    path: str
    partition_by: tuple[PartitionKey, ...] = ("date", "hour")
    compression: Compression = "zstd"
    target_file_size: SizeBytes = Field(default=_TARGET_FILE_BYTES, ge=MIB)


class ParquetSink(Sink, frozen=True, kw_only=True, tag="parquet"):
    """An archive of Parquet files, partitioned by parts of the event's time (UTC)."""

    path: str
    partition_by: tuple[PartitionKey, ...] = ("date", "hour")
    compression: Compression = "zstd"
    target_file_bytes: int = _TARGET_FILE_BYTES

    @property
    def output_directory(self) -> str:
        return self.path

    @property
    def batch_records_max(self) -> int:
        return 500_000  # some three seconds of work; larger batches make larger files too


def _compile(model: ParquetSinkModel, common: CommonFields, report: SinkReport) -> ParquetSink:
    return ParquetSink(
        **common,
        path=model.path,
        partition_by=tuple(dict.fromkeys(model.partition_by)),
        compression=model.compression,
        target_file_bytes=model.target_file_size,
    )


def _open(sink: ParquetSink, context: SinkContext) -> SinkWriter:
    from logboom.pipeline.sinks.parquet.delivery import open_archive

    return open_archive(sink, context)


SINK: Final = SinkType("parquet", ParquetSinkModel, ParquetSink, _compile, _open)
