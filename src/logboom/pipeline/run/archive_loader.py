"""Copies events of an archive into the stream that a replay reads, limited to what the log has space for.

The files of an archive have events in the order of their times and batches, but readers of an edge recognise repeats by
the order of origins. So Spark sorts the events before they are written: each partition of the stream has whole
partitions of origin, in order.

An archive may be larger than the log or any local disk. So it is loaded in slices (`archive_slices`): the replay
processes one slice completely, then it is deleted from the stream, and the next slice is loaded. No record of a slice
is read before all are written. `load.json` records the progress: a slice whose load was interrupted is deleted from the
stream and loaded again.

Knows Spark, the archive's reader and the log. Must not know how the events are processed.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from logboom.base.units import GIB, MIB
from logboom.pipeline.checkpoint.checked import read_checked, write_checked
from logboom.pipeline.checkpoint.files import make_dir
from logboom.pipeline.checkpoint.spark_log import durably_committed, first_offsets
from logboom.pipeline.edge.streams import EDGE_CONFIGS, EVENT_MAX_BYTES, StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.event.json import json_values
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.run.archive_slices import COUNTS, ArchivePart, Origin, Position, Slice, Survey, cut, origins_of
from logboom.pipeline.run.replay import Replay, log_part_directory
from logboom.pipeline.sinks.parquet.reading import ArchiveReader
from logboom.pipeline.spark.arrow_batches import lift_limit, limit_bytes
from logboom.pipeline.spark.causes import cause_of
from logboom.pipeline.spark.kafka import write_records

PARTITIONS: Final = 8
ROOM_BYTES: Final = 4 * GIB
"""Default size of a slice in the log."""
_LOADED: Final = "loaded.json"
"""File of earlier versions, which loaded everything at once."""
_LOAD: Final = "load.json"
_ADVICE: Final = "begin another replay"
_ATTEMPTS: Final = 5
"""A load starts over this often because files were merged while it read them."""
_WATCH_S: Final = 0.5
_ROWS: Final = "stream string, partition int, offset bigint, event_id string, value binary"
_DELETE_S: Final = 60.0
_PRODUCER: Final = {
    "kafka.acks": "all",
    "kafka.compression.type": "lz4",
    "kafka.linger.ms": "20",
    "kafka.max.request.size": str(EVENT_MAX_BYTES + MIB),
    "kafka.buffer.memory": str(2 * EVENT_MAX_BYTES + MIB),
}


class _OriginAt(msgspec.Struct, frozen=True):
    stream: str
    partition: int
    offset: int


class _Load(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a load."""

    position: tuple[_OriginAt, ...] = ()
    """The offset up to which each origin was loaded."""
    is_loading: bool = False
    """Whether the next slice is being written: all earlier ones were processed, and the stream may have a part of
    it."""
    is_last: bool = False
    """Whether no slice is left."""

    def begin(self) -> dict[Origin, int]:
        """The first offset of each origin that was not loaded."""
        return {Origin(one.stream, one.partition): one.offset for one in self.position}

    def after(self, upto: Position, *, is_last: bool) -> "_Load":
        """The progress after another slice."""
        reached = self.begin() | dict(upto)
        return _Load(position=tuple(_OriginAt(*each, at) for each, at in sorted(reached.items())), is_last=is_last)


def room_of(replay: Replay) -> int:
    """Size limit of a slice in the log, in bytes."""
    return ROOM_BYTES if replay.room_bytes is msgspec.UNSET else replay.room_bytes


def seam_of(replay: Replay, query: Path) -> dict[Origin, int] | None:
    """The offset of each origin up to which an archive is read, if the rest is read from the log; None: all is in the
    archive.

    `query`: the query of the part from the log. Records that were deleted after the replay was planned and before this
    query started come from the archive, too.
    """
    if not replay.seam:
        return None
    began = first_offsets(query)
    return {
        Origin(one.stream, one.partition): max(one.offset, began.get(one.stream, {}).get(one.partition, 0))
        for one in replay.seam
    }


@contextlib.contextmanager
def _cancelled_by(stop: threading.Event, spark: SparkSession) -> Iterator[None]:
    """Jobs that are started in the body are cancelled when a stop is requested."""
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


@dataclass(slots=True)
class ArchiveLoader:
    """The load of one replay, whose plan reads one stream."""

    plan: Plan
    replay: Replay
    directory: Path
    """The replay's checkpoint."""
    admin: StreamAdmin
    notify: Callable[[str], None]
    _is_begun: bool = field(default=False, init=False)
    """Whether this process has loaded a slice before."""
    _part: ArchivePart | None = field(default=None, init=False)
    _slices: list[Slice] = field(default_factory=list, init=False)
    """The files that are left of that part."""
    _left: int = field(default=0, init=False)
    """Number of events that are left to load, as counted by this process."""

    @property
    def stream(self) -> str:
        """The stream that is filled."""
        return self.plan.sources[0].streams[0]

    def prepare(self) -> None:
        """Create the stream, before anything waits for it."""
        self.admin.ensure({self.stream: PARTITIONS}, EDGE_CONFIGS)

    def load(self, spark: SparkSession, stop: threading.Event) -> bool:
        """Load the next slice after the end of the previous one; returns whether there may be more.

        Call this with the checkpoint's lock, before each run of the replay, which processes the whole stream. The first
        run of a process gets what an earlier one loaded and may not have processed. Ends early on `stop`.
        """
        if (self.directory / _LOADED).exists():
            return False
        load, is_begun = self._kept(), self._is_begun
        self._is_begun = True
        if load.is_last or (load.position and not load.is_loading and not is_begun):
            return not load.is_last
        make_dir(self.directory)
        write_checked(self.directory / _LOAD, msgspec.structs.replace(load, is_loading=True))
        loaded = self._attempted(spark, load, stop)
        if loaded is None:
            return False
        write_checked(self.directory / _LOAD, loaded)
        return not loaded.is_last

    def _attempted(self, spark: SparkSession, load: _Load, stop: threading.Event) -> _Load | None:
        """None if it was stopped."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with _cancelled_by(stop, spark):
                    return self._next(spark, load)
            except Exception as error:  # Spark raises many types; raised again as one sentence after the last attempt
                if stop.is_set():
                    return None
                # Spark wraps errors of tasks; an archive's files may just have been merged.
                if attempt == _ATTEMPTS or "FileNotFoundError" not in str(error):
                    raise PipelineError(f"the archive cannot be copied to {self.stream}: {cause_of(error)}") from error
                self._part = None
                self.notify("files of the archive were merged while they were read: starting to read again")
        raise AssertionError("the last attempt returns or raises")

    def _kept(self) -> _Load:
        try:
            return read_checked(self.directory / _LOAD, _Load, _ADVICE)
        except FileNotFoundError:
            return _Load()

    def _empty(self) -> None:
        """Delete records that were processed, and those of an interrupted load.

        Spark does not sync the progress of its query: after a power failure it might read again from an offset that is
        deleted.
        """
        durably_committed(self.directory / "router")
        ends = self.admin.ends({self.stream: PARTITIONS})[self.stream]
        asked = {(self.stream, int(number)): end for number, end in ends.items() if end}
        for done in (self.admin.delete_before(asked) if asked else {}).values():
            done.result(_DELETE_S)

    def _next(self, spark: SparkSession, load: _Load) -> _Load:
        self._empty()
        limit_bytes(spark)
        try:
            part = self._part or self._surveyed(spark, load)
            chosen = self._slices[0] if self._slices else Slice()
            files = tuple(part.files[number] for number in sorted(chosen.files))
            self._fill(spark, replace(part, files=files, begin=load.begin()), chosen)
        finally:
            lift_limit(spark)
        self._slices = self._slices[1:]
        self._left = sum(each.events for each in self._slices)
        behind = f", {self._left:,} more will follow" if self._left else ""
        self.notify(f"{chosen.events:,} events of the archive are loaded into {self.stream}{behind}")
        return load.after(chosen.upto, is_last=not self._slices)

    def _surveyed(self, spark: SparkSession, load: _Load) -> ArchivePart:
        """What is left of the archive, in slices."""
        assert self.replay.archive is not None, "a replay from the log has nothing to load"
        reader = ArchiveReader(self.replay.archive.path, self.replay.archive.store)
        chosen = (self.replay.from_ms, self.replay.to_ms, self.replay.ids)
        end = seam_of(self.replay, log_part_directory(self.directory) / "router")
        part = ArchivePart(reader, tuple(reader.files()), *chosen, load.begin(), end)
        counts = _file_numbers(spark, len(part.files)).mapInArrow(Survey(part), COUNTS)
        self._slices = cut(counts.toArrow(), room_of(self.replay))
        left, before = sum(each.events for each in self._slices), self._left
        if left < before:  # files that were merged still have the same events
            raise PipelineError(
                f"{before - left:,} of the {before:,} remaining events were deleted from the archive; "
                "--resume continues with the others"
            )
        self._part, self._left = part, left
        return part

    def _fill(self, spark: SparkSession, part: ArchivePart, chosen: Slice) -> None:
        slots = max(1, spark.sparkContext.defaultParallelism)
        found = _file_numbers(spark, len(part.files)).mapInArrow(_Read(part, chosen.upto), _ROWS)
        self._write(found, min(PARTITIONS, slots))

    def _write(self, found: DataFrame, at_once: int) -> None:
        to = F.pmod(F.hash("stream", "partition"), F.lit(PARTITIONS))
        # The ids of events that were one record have the same prefix and a number, which increases with their order.
        order = ("stream", "partition", "offset", F.length("event_id"), "event_id")
        ordered = found.withColumn("to", to).repartition(PARTITIONS, "to").sortWithinPartitions(*order)
        if self.replay.events_per_s is not None:
            share = _Paced(max(1.0, self.replay.events_per_s / at_once))
            ordered = ordered.select("value", "to").mapInArrow(share, "value binary, to int")
        records = ordered.select(F.lit(self.stream).alias("topic"), F.col("to").alias("partition"), "value")
        write_records(records, self.admin.bootstrap, _PRODUCER)


def _file_numbers(spark: SparkSession, count: int) -> DataFrame:
    """Numbers from 0 to `count`, for tasks that each read some of the files."""
    slots = max(1, spark.sparkContext.defaultParallelism)
    return spark.range(0, count, 1, max(1, min(count, 4 * slots)))


@dataclass(frozen=True, slots=True)
class _Read:
    """Reads the files with the given numbers of one slice. Pickled for executors."""

    part: ArchivePart
    upto: dict[Origin, int]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for file in batch.column(0).to_pylist():
                for events in self.part.events(file, self.upto):
                    stream, partition, offset = origins_of(events)
                    columns = [stream, partition, offset, events.column("event_id"), json_values(events)]
                    yield pa.RecordBatch.from_arrays(columns, ["stream", "partition", "offset", "event_id", "value"])


@dataclass(frozen=True, slots=True)
class _Paced:
    """Limits the rows per second. Pickled for executors."""

    rows_per_s: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            time.sleep(batch.num_rows / self.rows_per_s)
