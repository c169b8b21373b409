"""Executor side of the Parquet archive: events as JSON in, staged Parquet files and a report out.

Knows Arrow, Parquet and the JSON form of an event. Must not know Spark or how files are committed. A file is staged
under a name that no reader of the archive takes for data, and synced before it is reported.
"""

import os
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logboom.base.units import MIB
from logboom.pipeline.plan.names import REPIN_KEY, RETRY_KEY
from logboom.pipeline.sinks.base import Refused
from logboom.pipeline.sinks.parquet import ParquetSink

STAGED_SUFFIX: Final = ".staged"
REPORT_COLUMN: Final = "report"
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Directory value of rows that have none: what Spark and pyarrow read as null."""
_BUFFER_MAX_BYTES: Final = 96 * MIB
_OPEN_FILES_MAX: Final = 64
_TIME: Final = pa.timestamp("us", tz="UTC")

SCHEMA: Final = pa.schema(
    [
        ("time", _TIME),
        ("observed_time", _TIME),
        ("severity_number", pa.int32()),
        ("severity_text", pa.string()),
        ("service", pa.string()),
        ("host", pa.string()),
        ("body", pa.string()),
        ("attributes", pa.string()),
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("event_id", pa.string()),
        ("weight", pa.float64()),
        ("source", pa.string()),
        ("stream", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
"""Columns of the archive; `attributes` is the text of one JSON object."""


class _Event(msgspec.Struct, gc=False):
    """An event as `logboom.pipeline.event.json` writes it; it holds nothing that could form a cycle."""

    event_id: str
    source: str
    stream: str
    partition: int
    offset: int
    attributes: msgspec.Raw = msgspec.Raw(b"{}")
    time: str | None = None
    observed_time: str | None = None
    severity_number: int | None = None
    severity_text: str | None = None
    service: str | None = None
    host: str | None = None
    body: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    weight: float = 1.0


_ONE: Final = msgspec.json.Decoder(_Event)
_MANY: Final = msgspec.json.Decoder(list[_Event])


class StagedFile(msgspec.Struct, frozen=True):
    """A file that waits to be committed; both paths are relative to the archive."""

    staged: str
    final: str
    rows: int
    size_bytes: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one task did with its part of a batch."""

    files: tuple[StagedFile, ...] = ()
    rows: int = 0
    repeats: int = 0
    high_water: dict[str, int] = {}
    """Highest offset of origin delivered, by `origin_key`."""
    retried: tuple[str, ...] = ()
    """Dead letters whose events were delivered now."""
    unreadable: tuple[Refused, ...] = ()


def origin_key(edge_stream: str, stream: str, partition: int, generation: str | None = None) -> str:
    """One partition of origin as one edge sees it, and of a batch that was pinned anew its generation."""
    return " ".join((edge_stream, stream, str(partition), *(() if generation is None else (generation,))))


@dataclass(frozen=True, slots=True)
class ArchiveWriter:
    """Turns one partition of an edge's stream into staged files; called by executors."""

    sink: ParquetSink
    root: str
    staging: str
    """Relative to `root`."""
    label: str
    """Starts the final names."""
    high_water: Mapping[str, int]
    retried: frozenset[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = _Task(self)
        for batch in batches:
            if batch.num_rows:
                task.take(batch)
        report = msgspec.json.encode(task.finished())
        yield pa.RecordBatch.from_pydict({REPORT_COLUMN: pa.array([report], pa.binary())})


@dataclass(slots=True)
class _Task:
    job: ArchiveWriter
    high_water: dict[str, int] = field(default_factory=dict)
    retried: list[str] = field(default_factory=list)
    unreadable: list[Refused] = field(default_factory=list)
    rows: int = 0
    repeats: int = 0
    files: "_Files" = field(init=False)

    def __post_init__(self) -> None:
        self.files = _Files(self.job)

    def take(self, batch: pa.RecordBatch) -> None:
        """Decodes, drops repeats and hands on; the rows of a partition of origin come in order of their offsets."""
        events, places = self._decoded(batch)
        if not events:
            return
        table = _table(events)
        kept = self._fresh(table, batch, places)
        fresh = table if kept.all() else table.filter(pa.array(kept))
        self.repeats += table.num_rows - fresh.num_rows
        self.rows += fresh.num_rows
        if fresh.num_rows:
            self.files.add(fresh)

    def finished(self) -> Report:
        return Report(
            files=tuple(self.files.finished()),
            rows=self.rows,
            repeats=self.repeats,
            high_water=self.high_water,
            retried=tuple(self.retried),
            unreadable=tuple(self.unreadable),
        )

    def _decoded(self, batch: pa.RecordBatch) -> tuple[list[_Event], np.ndarray[Any, Any]]:
        """The events, and for each the row of the batch it came from."""
        values = batch.column("value")
        if not values.null_count:
            try:
                return _MANY.decode(_as_one_list(values)), np.arange(len(values))
            except msgspec.DecodeError:  # one of them is no event: find out which
                pass
        return self._decoded_singly(batch, values.to_pylist())

    def _decoded_singly(
        self, batch: pa.RecordBatch, values: Sequence[bytes | None]
    ) -> tuple[list[_Event], np.ndarray[Any, Any]]:
        events, places = [], []
        for row, value in enumerate(values):
            try:
                events.append(_ONE.decode(value or b""))
                places.append(row)
            except msgspec.DecodeError as error:
                stream, partition, offset = (
                    batch.column(name)[row].as_py() for name in ("topic", "partition", "offset")
                )
                self.unreadable.append(Refused(stream, partition, offset, value or b"", str(error)))
        return events, np.array(places, dtype=np.int64)

    def _fresh(self, table: pa.Table, batch: pa.RecordBatch, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Which rows have not been delivered before: above the highest offset of their partition of origin so far."""
        edges = batch.column("topic").take(pa.array(rows))
        columns = [edges, table.column("stream"), table.column("partition")]
        generations = self._marked(batch, rows, REPIN_KEY)
        if generations.any():
            # Its records follow those of the first attempt but may be others: they are compared with their own only.
            marks = batch.column("key").cast(pa.string()).take(pa.array(rows))
            columns.append(pc.if_else(pa.array(generations), marks, pa.scalar(None, pa.string())))
        codes, keys = _grouped(columns)
        offsets = table.column("offset").to_numpy()
        retries = self._marked(batch, rows, RETRY_KEY)
        fresh = np.zeros(len(offsets), dtype=bool)
        for code, origin in enumerate(keys):
            here = np.flatnonzero((codes == code) & ~retries)
            if len(here):
                key = origin_key(*origin)
                floor = self.high_water.get(key, self.job.high_water.get(key, -1))
                reached = np.maximum.accumulate(np.concatenate(([floor], offsets[here])))
                fresh[here] = offsets[here] > reached[:-1]
                self.high_water[key] = int(reached[-1])
        fresh[np.flatnonzero(retries)] = self._fresh_retries(batch, rows[retries])
        return fresh

    @staticmethod
    def _marked(batch: pa.RecordBatch, rows: np.ndarray[Any, Any], prefix: bytes) -> np.ndarray[Any, Any]:
        """Which rows have a key that begins with this: most have none at all."""
        keys = batch.column("key")
        if keys.null_count == len(keys):
            return np.zeros(len(rows), dtype=bool)
        marked = pc.fill_null(pc.starts_with(keys, prefix.decode()), fill_value=False)
        return np.asarray(marked.to_numpy(zero_copy_only=False)[rows], dtype=bool)

    def _fresh_retries(self, batch: pa.RecordBatch, rows: np.ndarray[Any, Any]) -> list[bool]:
        fresh = []
        for row in rows:
            letter = batch.column("key")[int(row)].as_py().removeprefix(RETRY_KEY).decode(errors="replace")
            fresh.append(letter not in self.job.retried and letter not in self.retried)
            if fresh[-1]:
                self.retried.append(letter)
        return fresh


class _Files:
    """The files of one task, one open at a time per directory, fed from a bounded buffer."""

    def __init__(self, job: ArchiveWriter) -> None:
        self._job = job
        self._waiting: dict[str, list[pa.Table]] = {}
        self._waiting_bytes = 0
        self._open: dict[str, _OpenFile] = {}
        self._done: list[StagedFile] = []

    def add(self, table: pa.Table) -> None:
        for directory, part in _by_directory(table, self._job.sink.partition_by):
            self._waiting.setdefault(directory, []).append(part)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes > _BUFFER_MAX_BYTES:
            self._flush()

    def finished(self) -> list[StagedFile]:
        """Everything written, synced and closed."""
        self._flush()
        for file in self._open.values():
            self._done.append(file.close())
        self._open.clear()
        return self._done

    def _flush(self) -> None:
        for directory, tables in self._waiting.items():
            if directory not in self._open:
                if len(self._open) >= _OPEN_FILES_MAX:
                    oldest = next(iter(self._open))
                    self._done.append(self._open.pop(oldest).close())
                self._open[directory] = _OpenFile(self._job, directory, tables[0].schema)
            self._open[directory].write(pa.concat_tables(tables))
        self._waiting.clear()
        self._waiting_bytes = 0


class _OpenFile:
    def __init__(self, job: ArchiveWriter, directory: str, schema: pa.Schema) -> None:
        name = f"{job.label}-{uuid.uuid4().hex[:12]}.parquet"
        self._staged, self._final = f"{job.staging}/{name}{STAGED_SUFFIX}", f"{directory}/{name}"
        self._path = Path(job.root, self._staged)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._path, schema, compression=job.sink.compression)
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)
        self._rows += table.num_rows

    def close(self) -> StagedFile:
        self._writer.close()
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        return StagedFile(self._staged, self._final, self._rows, self._path.stat().st_size)


def _as_one_list(values: pa.Array) -> memoryview:
    """The JSON of all values as one JSON list, joined without making an object of each."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    joined = pc.binary_join_element_wise(b"[", pc.binary_join(whole, b","), b"]", b"")
    return memoryview(joined[0].as_buffer())


_COLUMNS: Final = tuple((field.name, field.type, attrgetter(field.name)) for field in SCHEMA)


def _table(events: Sequence[_Event]) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for name, kind, value_of in _COLUMNS:
        # A column is read by one C loop over the events: a comprehension costs more than all the rest of the table.
        values = list(map(value_of, events))
        if name == "attributes":
            column = pa.array(list(map(bytes, values)), pa.binary()).cast(pa.string())
        elif kind == _TIME:
            column = pa.array(values, pa.string()).cast(_TIME)
        else:
            column = pa.array(values, kind)
        columns[name] = column
    return pa.Table.from_pydict(columns, schema=SCHEMA)


def _grouped(columns: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[np.ndarray[Any, Any], list[tuple[Any, ...]]]:
    """Each row's group of equal values, and the values of each group."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        coded = pc.dictionary_encode(column, null_encoding="encode")
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.chunk(0)
        codes = codes * len(coded.dictionary) + coded.indices.to_numpy()
    _, first, groups = np.unique(codes, return_index=True, return_inverse=True)
    return groups, [tuple(column[int(row)].as_py() for column in columns) for row in first]


def _by_directory(table: pa.Table, partition_by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each directory, without the columns that its name already tells."""
    when = pc.coalesce(table.column("time"), table.column("observed_time"))
    hours = pc.floor_temporal(when, unit="hour")
    grouped_by = [hours if name in ("date", "hour") else table.column(name) for name in partition_by]
    groups, keys = _grouped(grouped_by)
    body = table.drop_columns([name for name in partition_by if name in SCHEMA.names])
    directories: dict[str, list[int]] = {}
    for code, values in enumerate(keys):
        parts = (f"{name}={_directory_value(name, value)}" for name, value in zip(partition_by, values, strict=True))
        directories.setdefault("/".join(parts), []).append(code)
    for directory, codes in directories.items():
        here = np.isin(groups, codes)
        yield directory, body if here.all() else body.filter(pa.array(here))


def _directory_value(name: str, value: Any) -> str:
    if value is None:
        return NO_VALUE
    if name == "date":
        return str(value.date().isoformat())  # strftime writes year 1 without the zeros in front
    if name == "hour":
        return str(value.strftime("%H"))
    return urllib.parse.quote(str(value), safe="") or NO_VALUE
