"""Splits the part of an archive that a replay reads into slices that fit in the log.

Sinks recognise repeats by the order of origins, so a slice is a range of offsets for each origin (a stream and
partition of the original records), following that of the previous slice. Ranges are assigned to slices by the time when
their events were first seen, so that transforms with state get events of the same time together, as far as the order of
origins allows.

`Survey` counts events per run of `RUN_OFFSETS` offsets in each file, on Spark's executors; `cut` combines these into
slices on the driver. Knows Arrow and the archive's reader. Must not know Spark, the log or sinks.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.json import json_values
from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.sinks.parquet.reading import ArchiveReader

RUN_OFFSETS: Final = 8_192
"""Granularity of slices: offsets of an origin that stay together."""
RECORD_BYTES: Final = 70
"""Maximum overhead of a Kafka record in addition to its value."""
COUNTS: Final = "file int, stream string, partition int, run bigint, events bigint, bytes bigint, seen bigint"
_ORIGIN: Final = ("stream", "partition")
_RUN: Final = (*_ORIGIN, "run")
_SUMS: Final = (("events", "sum"), ("bytes", "sum"), ("seen", "min"))


class Origin(NamedTuple):
    """The origin of events. For events without one: the empty stream and partition -1."""

    stream: str
    partition: int


Position = Mapping[Origin, int]
"""The first offset of each origin that was not loaded; 0 for origins that are missing here."""


@dataclass(slots=True)
class Slice:
    """A range of offsets of each origin."""

    upto: dict[Origin, int] = field(default_factory=dict)
    """The end offset for each origin; origins that are missing here have no events in the slice."""
    files: set[int] = field(default_factory=set)
    """Numbers of the files with events of the slice."""
    events: int = 0
    size_bytes: int = 0
    """Size in the log, before compression."""


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """The selected part of an archive. Pickled for executors."""

    reader: ArchiveReader
    files: tuple[str, ...]
    from_ms: int
    to_ms: int
    ids: tuple[str, ...]
    begin: Position
    end: Position | None = None
    """Select only these origins, up to these offsets; None: everything."""

    def events(self, file: int, upto: Position | None = None) -> Iterator[pa.RecordBatch]:
        """The selected events of a file: of origins in `upto`, from `begin` to there; None: all.

        FileNotFoundError if the file was merged with others since its archive was listed.
        """
        names, upto = LIVE_SCHEMA.names, self._within_end(upto)
        for batch in self.reader.batches(self.files[file], names, self.from_ms, self.to_ms, self.ids):
            chosen = batch if upto is None and not self.begin else batch.filter(self._is_between(batch, upto))
            if chosen.num_rows:
                yield chosen

    def _within_end(self, upto: Position | None) -> Position | None:
        if upto is None or self.end is None:
            return self.end if upto is None else upto
        return {origin: min(at, self.end[origin]) for origin, at in upto.items() if origin in self.end}

    def _is_between(self, events: pa.RecordBatch, upto: Position | None) -> Any:
        stream, partition, offset = origins_of(events)
        found: Any = pa.repeat(pa.scalar(False), events.num_rows)
        pairs = pa.table({"stream": stream, "partition": partition}).group_by(list(_ORIGIN)).aggregate([])
        for pair in pairs.to_pylist():
            origin = Origin(pair["stream"], pair["partition"])
            if upto is not None and origin not in upto:
                continue
            mine = pc.and_(pc.equal(stream, origin.stream), pc.equal(partition, origin.partition))
            mine = pc.and_(mine, pc.greater_equal(offset, self.begin.get(origin, 0)))
            if upto is not None:
                mine = pc.and_(mine, pc.less(offset, upto[origin]))
            found = pc.or_(found, mine)
        return found


def origins_of(events: pa.RecordBatch) -> tuple[Any, Any, Any]:
    """Stream, partition and offset of each event, without nulls."""
    stream = events.column("stream").cast(pa.string()).fill_null("")
    return stream, events.column("partition").fill_null(-1), events.column("offset").fill_null(0)


@dataclass(frozen=True, slots=True)
class Survey:
    """Counts the runs of offsets in the files with the given numbers. Pickled for executors."""

    part: ArchivePart

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for file in batch.column(0).to_pylist():
                found = [_counted(events) for events in self.part.events(file)]
                if found:
                    whole = _summed(pa.concat_tables(found))
                    files = pa.repeat(pa.scalar(file, pa.int32()), whole.num_rows)
                    yield from whole.add_column(0, "file", files).to_batches()


def _counted(events: pa.RecordBatch) -> pa.Table:
    stream, partition, offset = origins_of(events)
    return _summed(
        pa.table(
            {
                "stream": stream,
                "partition": partition,
                "run": pc.divide(offset, RUN_OFFSETS),
                "events": pa.repeat(pa.scalar(1, pa.int64()), events.num_rows),
                "bytes": pc.add(pc.binary_length(json_values(events)).cast(pa.int64()), RECORD_BYTES),
                "seen": events.column("observed_time").cast(pa.int64()),
            }
        )
    )


def _summed(counts: pa.Table) -> pa.Table:
    summed = counts.group_by(list(_RUN)).aggregate(list(_SUMS))
    columns = [*_RUN, *(f"{name}_{kind}" for name, kind in _SUMS)]
    return summed.select(columns).rename_columns([*_RUN, *(name for name, _ in _SUMS)])


def cut(counts: pa.Table, room_bytes: int) -> list[Slice]:
    """Combine the counts of `Survey` into slices, each as large as the limit allows, with at least one run of
    offsets."""
    slices: list[Slice] = []
    for origin, run, events, size_bytes, files in _runs_in_order(counts):
        if not slices or slices[-1].size_bytes + size_bytes > room_bytes:
            slices.append(Slice())
        last = slices[-1]
        last.upto[origin] = (run + 1) * RUN_OFFSETS
        last.files.update(files)
        last.events += events
        last.size_bytes += size_bytes
    return slices


def _runs_in_order(counts: pa.Table) -> list[tuple[Origin, int, int, int, list[int]]]:
    """Sort by the time when events were first seen, and within an origin by offset."""
    whole = counts.group_by(list(_RUN)).aggregate([*_SUMS, ("file", "list")])
    latest: dict[Origin, int] = {}
    found = []
    for row in whole.sort_by([(name, "ascending") for name in _RUN]).to_pylist():
        origin, seen = Origin(row["stream"], row["partition"]), row["seen_min"]
        before = latest.get(origin)
        if before is not None:
            seen = before if seen is None else max(before, seen)
        if seen is not None:
            latest[origin] = seen
        key = (-1 if seen is None else seen, origin, row["run"])
        found.append((key, row["events_sum"], row["bytes_sum"], row["file_list"]))
    return [(key[1], key[2], events, size, files) for key, events, size, files in sorted(found, key=lambda one: one[0])]
