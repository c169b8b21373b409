"""Executor side of the Parquet archive: events as JSON in, staged Parquet files and a report out.

Knows Arrow, Parquet and the JSON form of an event. Must not know Spark or how files are committed. A file is staged
under a name that no reader of the archive takes for data, and synced before it is reported.
"""

import os
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.base.units import MIB
from logboom.pipeline.event.reading import EventRows, read_events
from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.plan.names import REPIN_KEY, RETRY_KEY
from logboom.pipeline.sinks.base import Refused
from logboom.pipeline.sinks.parquet import ParquetSink
from logboom.pipeline.sinks.parquet.writing import parquet_writer

STAGED_SUFFIX: Final = ".staged"
REPORT_COLUMN: Final = "report"
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Directory value of rows that have none: what Spark and pyarrow read as null."""
_BUFFER_MAX_BYTES: Final = 96 * MIB
_OPEN_FILES_MAX: Final = 64
_HOUR_US: Final = 3_600_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_HOUR: Final = np.iinfo(np.int64).min // _HOUR_US
_RUN_ROWS_MIN: Final = 256
"""Runs of rows of one directory that are so long on average are taken as slices, which copies nothing."""

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


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
        for found in read_events(batch.column("value")):
            for row, reason in found.unreadable:
                self.unreadable.append(_refused(batch, row, reason))
            if len(found.rows):
                self._add(found, batch)

    def _add(self, found: EventRows, batch: pa.RecordBatch) -> None:
        table = found.events
        kept = self._fresh(table, batch, found.rows)
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

    def _fresh(self, table: pa.Table, batch: pa.RecordBatch, rows: Index) -> Mask:
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
    def _marked(batch: pa.RecordBatch, rows: Index, prefix: bytes) -> Mask:
        """Which rows have a key that begins with this: most have none at all."""
        keys = batch.column("key")
        if keys.null_count == len(keys):
            return np.zeros(len(rows), dtype=bool)
        marked = pc.fill_null(pc.starts_with(keys, prefix.decode()), fill_value=False)
        return np.asarray(marked.to_numpy(zero_copy_only=False)[rows], dtype=bool)

    def _fresh_retries(self, batch: pa.RecordBatch, rows: Index) -> list[bool]:
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
        self._writer = parquet_writer(self._path, schema, job.sink.compression)
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)
        self._rows += table.num_rows

    def close(self) -> StagedFile:
        self._writer.close()
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        return StagedFile(self._staged, self._final, self._rows, self._path.stat().st_size)


def _refused(batch: pa.RecordBatch, row: int, reason: str) -> Refused:
    stream, partition, offset, value = (
        batch.column(name)[row].as_py() for name in ("topic", "partition", "offset", "value")
    )
    return Refused(stream, partition, offset, value or b"", reason)


def _grouped(columns: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Index, list[tuple[Any, ...]]]:
    """Each row's group of equal values, and the values of each group."""
    rows = len(columns[0])
    codes, count = np.zeros(rows, np.int64), 1
    for column in columns:
        coded = pc.dictionary_encode(column, null_encoding="encode")
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.chunk(0)
        if len(coded.dictionary) > 1:
            codes = codes * len(coded.dictionary) + coded.indices.to_numpy()
            count *= len(coded.dictionary)
        if count > rows:  # few of the combinations can be there
            found, codes = np.unique(codes, return_inverse=True)
            count = len(found)
    first = np.full(count, -1, np.int64)
    first[codes[::-1]] = np.arange(rows - 1, -1, -1)  # of several rows with one code the one written last stays
    there = np.flatnonzero(first >= 0)
    group_of = np.zeros(count, np.int64)
    group_of[there] = np.arange(len(there))
    keys = [tuple(column[row].as_py() for column in columns) for row in first[there].tolist()]
    return group_of[codes], keys


def _by_directory(table: pa.Table, partition_by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each directory, in order, without the columns that its name already tells."""
    by_time = [name for name in partition_by if name in ("date", "hour")]
    others = [name for name in partition_by if name not in by_time]
    grouped_by = [table.column(name) for name in others]
    if by_time:
        grouped_by.append(_hours(table))
    groups, keys = _grouped(grouped_by)
    directories = []
    for values in keys:
        value_of = dict(zip(others, values, strict=False)) | {name: _hour(values[-1]) for name in by_time}
        directories.append("/".join(f"{name}={_directory_value(name, value_of[name])}" for name in partition_by))
    body = table.drop_columns([name for name in others if name in LIVE_SCHEMA.names])
    bounds = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
    if len(bounds) * _RUN_ROWS_MIN <= len(groups) or len(keys) == 1:
        for start, stop in pairwise(bounds):
            yield directories[groups[start]], body.slice(start, stop - start)
        return
    for directory in dict.fromkeys(directories):
        here = np.isin(groups, [group for group, name in enumerate(directories) if name == directory])
        yield directory, body.filter(pa.array(here))


def _hours(table: pa.Table) -> pa.Array:
    """Hours since 1970 of each event's time, or where it has none of the time at which it was observed."""
    when = pc.coalesce(table.column("time"), table.column("observed_time")).cast(pa.int64())
    micros = pc.fill_null(when, np.iinfo(np.int64).min).to_numpy()
    return pa.array(micros // _HOUR_US)


def _hour(number: int) -> datetime | None:
    """The hour of that number, counted from 1970; None for none, and for one that no calendar has."""
    try:
        return None if number == _NO_HOUR else _EPOCH + timedelta(hours=number)
    except OverflowError:
        return None


def _directory_value(name: str, value: Any) -> str:
    if value is None:
        return NO_VALUE
    if name == "date":
        return str(value.date().isoformat())  # strftime writes year 1 without the zeros in front
    if name == "hour":
        return str(value.strftime("%H"))
    return urllib.parse.quote(str(value), safe="") or NO_VALUE
