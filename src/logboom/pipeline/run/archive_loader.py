"""Brings events of an archive into the stream from which a replay reads them.

An archive's files have events in the order of their times and batches; whoever reads an edge knows repeats by the order
of origins. So Spark sorts them here, on its disks, before they are written: each partition of the stream has whole
partitions of origin, in their order. Nothing is read from the stream before all of it is written, which a file says
(`loaded.json`). A load that was cut short is done again, from nothing.

Knows Spark, the archive's reader and the log. Must not know what becomes of the events.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from logboom.base.units import MIB
from logboom.pipeline.checkpoint.files import make_dir, write_durably
from logboom.pipeline.edge.streams import EDGE_CONFIGS, EVENT_MAX_BYTES, StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.event.json import json_values
from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.run.replay import Replay
from logboom.pipeline.sinks.parquet.reading import ArchiveReader
from logboom.pipeline.spark.causes import cause_of
from logboom.pipeline.spark.kafka import write_records
from logboom.pipeline.spark.settings import ARROW_BYTES, ARROW_BYTES_MAX, SETTINGS

PARTITIONS: Final = 8
_LOADED: Final = "loaded.json"
_ATTEMPTS: Final = 5
"""Files that are merged with others while they are read make a load begin anew."""
_WATCH_S: Final = 0.5
_ROWS: Final = "stream string, partition int, offset bigint, event_id string, value binary"
_ORIGIN: Final = ("stream", "partition", "offset", "event_id")
_PRODUCER: Final = {
    "kafka.acks": "all",
    "kafka.compression.type": "lz4",
    "kafka.linger.ms": "20",
    "kafka.max.request.size": str(EVENT_MAX_BYTES + MIB),
    "kafka.buffer.memory": str(2 * EVENT_MAX_BYTES + MIB),
}


class _Loaded(msgspec.Struct, frozen=True):
    events: int


@contextlib.contextmanager
def _cancelled_by(stop: threading.Event, spark: SparkSession) -> Iterator[None]:
    """Jobs of the body end with an error once it is asked to stop."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_WATCH_S):
            if stop.is_set():
                spark.sparkContext.cancelAllJobs()

    watcher = threading.Thread(target=watch, name="archive-load", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@dataclass(frozen=True, slots=True)
class ArchiveLoader:
    """The load of one replay, whose plan reads one stream."""

    plan: Plan
    replay: Replay
    directory: Path
    """The replay's checkpoint."""
    admin: StreamAdmin
    notify: Callable[[str], None]

    @property
    def stream(self) -> str:
        """The stream that it fills."""
        return self.plan.sources[0].streams[0]

    def prepare(self) -> None:
        """Makes the stream, before anybody waits for it."""
        self.admin.ensure({self.stream: PARTITIONS}, EDGE_CONFIGS)

    def load(self, spark: SparkSession, stop: threading.Event) -> None:
        """Fills the stream, unless an earlier run has, or until `stop`. To be called behind the checkpoint's lock."""
        if (self.directory / _LOADED).exists():
            return
        for attempt in range(1, _ATTEMPTS + 1):
            self._empty()
            try:
                with _cancelled_by(stop, spark):
                    events = self._fill(spark)
            except Exception as error:  # not BLE001: whatever Spark says, it is raised on in one sentence
                if stop.is_set():
                    return
                # Spark wraps what a task raised; the archive may just have been merged.
                if attempt == _ATTEMPTS or "FileNotFoundError" not in str(error):
                    raise PipelineError(
                        f"the archive cannot be brought into {self.stream}: {cause_of(error)}"
                    ) from error
                self.notify("files of the archive were merged while they were read: reading anew")
            else:
                break
        make_dir(self.directory)
        write_durably(self.directory / _LOADED, msgspec.json.encode(_Loaded(events)))
        self.notify(f"{events:,} events of the archive wait in {self.stream}")

    def _empty(self) -> None:
        if any(self.admin.ends({self.stream: PARTITIONS})[self.stream].values()):
            self.admin.delete([self.stream])
            self.prepare()

    def _fill(self, spark: SparkSession) -> int:
        assert self.replay.archive is not None, "a replay from the log has nothing to load"
        reader = ArchiveReader(self.replay.archive.path, self.replay.archive.store)
        files = tuple(reader.files())
        slots = max(1, spark.sparkContext.defaultParallelism)
        read = _Read(reader, files, self.replay.from_ms, self.replay.to_ms, self.replay.ids)
        spark.conf.set(ARROW_BYTES, ARROW_BYTES_MAX)
        try:
            found = spark.range(0, len(files), 1, max(1, min(len(files), 4 * slots))).mapInArrow(read, _ROWS)
            self._write(found, min(PARTITIONS, slots))
        finally:
            spark.conf.set(ARROW_BYTES, SETTINGS[ARROW_BYTES])
        return sum(self.admin.ends({self.stream: PARTITIONS})[self.stream].values())

    def _write(self, found: DataFrame, at_once: int) -> None:
        to = F.pmod(F.hash("stream", "partition"), F.lit(PARTITIONS))
        # Events that were one record have ids of one beginning and a number, which grows with their order.
        order = ("stream", "partition", "offset", F.length("event_id"), "event_id")
        ordered = found.withColumn("to", to).repartition(PARTITIONS, "to").sortWithinPartitions(*order)
        if self.replay.events_per_s is not None:
            share = _Paced(max(1.0, self.replay.events_per_s / at_once))
            ordered = ordered.select("value", "to").mapInArrow(share, "value binary, to int")
        records = ordered.select(F.lit(self.stream).alias("topic"), F.col("to").alias("partition"), "value")
        write_records(records, self.admin.bootstrap, _PRODUCER)


@dataclass(frozen=True, slots=True)
class _Read:
    """Reads the files of the numbers that it is given. It travels to executors."""

    reader: ArchiveReader
    files: tuple[str, ...]
    from_ms: int
    to_ms: int
    ids: tuple[str, ...]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._events(self.files[number])

    def _events(self, file: str) -> Iterator[pa.RecordBatch]:
        for events in self.reader.batches(file, LIVE_SCHEMA.names, self.from_ms, self.to_ms, self.ids):
            columns = [events.column(name) for name in _ORIGIN]
            yield pa.RecordBatch.from_arrays([*columns, json_values(events)], [*_ORIGIN, "value"])


@dataclass(frozen=True, slots=True)
class _Paced:
    """Hands on at most so many rows in a second. It travels to executors."""

    rows_per_s: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            time.sleep(batch.num_rows / self.rows_per_s)
