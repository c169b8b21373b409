"""The sink `parquet`: an archive of Parquet files that any reader of Parquet can read while it grows.

`delivery` runs on the driver and handles a batch from its rows to its commit. `staging` runs on executors: it converts
the JSON of events to columns (`pipeline.event.reading`), skips events that were delivered before, and writes one synced
file (`writing`) for each directory (`partitioning`), with a name that readers ignore. `archive` adds staged files to
the archive, batch by batch, with one durable manifest. The manifest also has the highest delivered offset of each
origin, by which repeats are recognised. `compaction` merges the small files of directories that no longer grow.

An archive in an object store (`stores`) has the same manifests. `object_archive` copies objects where `archive` renames
files. It merges nothing, so batches should be large.

This module has the sink's keys and plan node and must stay cheap to import: Arrow and Spark are imported when the sink
is opened.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from pydantic import Field

from logboom.base.settings import DurationMs, SizeBytes
from logboom.base.units import MIB
from logboom.pipeline.plan.nodes import Sink
from logboom.pipeline.plan.stores import StoreRef, is_url_of_store, option_faults, store_fault
from logboom.pipeline.sinks.base import CommonFields, SinkContext, SinkModel, SinkReport, SinkType, SinkWriter

PartitionKey = Literal["date", "hour", "service", "stream", "source"]
Compression = Literal["zstd", "snappy", "gzip", "none"]
_TARGET_FILE_BYTES: Final = 128 * MIB
_INTERVAL_MS: Final = 2_000
_STORE_INTERVAL_MS: Final = 60_000


class ParquetSinkModel(SinkModel):
    """An archive of Parquet files."""

    type: Literal["parquet"]
    path: str
    partition_by: tuple[PartitionKey, ...] = Field(default=("date", "hour"), min_length=1)
    compression: Compression = "zstd"
    target_file_size: SizeBytes = Field(default=_TARGET_FILE_BYTES, ge=MIB)
    interval: DurationMs | None = Field(default=None, ge=100, le=3_600_000)
    """Time between two batches, each of which creates new files. Default: 2s, and 1m in an object store."""

    endpoint: str | None = None
    """Address of an S3 server other than Amazon's, `http://HOST:PORT`, for a `path` that begins with s3://."""

    region: str | None = None
    """Region of the bucket; for Amazon's it is found automatically."""


class ParquetSink(Sink, frozen=True, kw_only=True, tag="parquet"):
    """An archive of Parquet files, partitioned by parts of the event's time (UTC)."""

    path: str
    partition_by: tuple[PartitionKey, ...] = ("date", "hour")
    compression: Compression = "zstd"
    target_file_bytes: int = _TARGET_FILE_BYTES
    own_interval_ms: int | msgspec.UnsetType = msgspec.UNSET
    store: StoreRef | msgspec.UnsetType = msgspec.UNSET
    """The object store of the archive."""

    @property
    def output_directory(self) -> str | None:
        return self.path if self.store is msgspec.UNSET else None

    @property
    def output_url(self) -> str | None:
        return None if self.store is msgspec.UNSET else self.store.url

    @property
    def interval_ms(self) -> int:
        if self.own_interval_ms is not msgspec.UNSET:
            return self.own_interval_ms
        return _INTERVAL_MS if self.store is msgspec.UNSET else _STORE_INTERVAL_MS

    @property
    def batch_records_max(self) -> int:
        return 500_000  # about three seconds of work; larger batches would also make larger files


def _compile(model: ParquetSinkModel, common: CommonFields, report: SinkReport) -> ParquetSink:
    return ParquetSink(
        **common,
        path=model.path,
        partition_by=tuple(dict.fromkeys(model.partition_by)),
        compression=model.compression,
        target_file_bytes=model.target_file_size,
        own_interval_ms=msgspec.UNSET if model.interval is None else model.interval,
        store=_store(model, report),
    )


def _store(model: ParquetSinkModel, report: SinkReport) -> StoreRef | msgspec.UnsetType:
    for key, fault in option_faults(model.path, model.endpoint, model.region).items():
        report.problem(key, fault)
    if not is_url_of_store(model.path):
        return msgspec.UNSET
    store = StoreRef(url=model.path.rstrip("/"), endpoint=model.endpoint, region=model.region)
    wrong = store_fault(store)
    if wrong is not None:
        report.problem("path", wrong)  # the message leaves out the path, which may contain a credential
    return store


def _open(sink: ParquetSink, context: SinkContext) -> SinkWriter:
    from logboom.pipeline.sinks.parquet.delivery import open_archive

    return open_archive(sink, context)


def _connect(sink: ParquetSink, context: SinkContext) -> None:
    if sink.store is not msgspec.UNSET:
        from logboom.pipeline.sinks.parquet.object_archive import try_store

        try_store(sink.store)


SINK: Final = SinkType("parquet", ParquetSinkModel, ParquetSink, _compile, _open, _connect)
