"""Executor side of the sink `file`: reads events as JSON, writes pieces of files, and reports them.

Knows Arrow and the JSON form of an event. Must not know Spark, nor where the files are. Only the driver of the same run
reads a piece, so pieces are not synced.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.base.units import MIB
from logboom.pipeline.sinks.file import FileSink
from logboom.pipeline.sinks.file.paths import filled, parts_of
from logboom.pipeline.sinks.repeats.grouping import grouped
from logboom.pipeline.sinks.repeats.new_events import FreshEvents, FreshRows, PartReport, Seen

REPORT_COLUMN: Final = "report"
_PIECE_BYTES: Final = MIB
_WAITING_MAX_BYTES: Final = 64 * MIB
_HOUR_US: Final = 3_600_000_000
Writes = Callable[[bytes], object]


class Piece(msgspec.Struct, frozen=True):
    """Whole lines that belong to one file, in the order of their events."""

    path: str
    """The path of the pipeline's file, with its parts filled in."""
    staged: str
    """The file with these lines."""
    start: int
    size_bytes: int


class LinesReport(PartReport, frozen=True, kw_only=True):
    """The report of one task about its part of a batch."""

    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class LineWriter:
    """Write one partition of an edge's stream into pieces. Called by executors."""

    sink: FileSink
    staging: str
    """A directory that the driver can read, too."""
    seen: Seen

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        events = FreshEvents(self.seen)
        with (Path(self.staging) / uuid.uuid4().hex).open("wb") as staged:
            lines = _Lines(self.sink, str(staged.name), staged.write)
            for batch in batches:
                for fresh in events.read(batch):
                    lines.add(batch, fresh)
            pieces = lines.finished()
        report = LinesReport(**msgspec.structs.asdict(events.report()), pieces=tuple(pieces))
        yield pa.RecordBatch.from_pydict({REPORT_COLUMN: pa.array([msgspec.json.encode(report)], pa.binary())})


class _Lines:
    """The lines of one task, collected by file into pieces of a good size."""

    def __init__(self, sink: FileSink, staged: str, write: Writes) -> None:
        self._sink = sink
        self._parts = parts_of(sink.path)
        self._staged = staged
        self._write = write
        self._position = 0
        self._waiting: dict[str, list[bytes]] = {}
        self._waiting_bytes: dict[str, int] = {}
        self._pieces: list[Piece] = []

    def add(self, batch: pa.RecordBatch, fresh: FreshRows) -> None:
        """The lines of some events."""
        if self._sink.encoding == "body":
            values = pc.fill_null(fresh.events.column("body"), "").cast(pa.binary()).to_pylist()
        else:
            values = batch.column("value").take(pa.array(fresh.rows)).to_pylist()
        for path, rows in self._by_path(fresh.events):
            lines = values if rows is None else [values[row] for row in rows]
            data = b"\n".join([*lines, b""])
            self._waiting.setdefault(path, []).append(data)
            size = self._waiting_bytes.get(path, 0) + len(data)
            self._waiting_bytes[path] = size
            if size >= _PIECE_BYTES:
                self._flush(path)
        if sum(self._waiting_bytes.values()) > _WAITING_MAX_BYTES:
            self.finished()

    def finished(self) -> list[Piece]:
        """Flush all lines and return all pieces."""
        for path in list(self._waiting):
            self._flush(path)
        return self._pieces

    def _by_path(self, events: pa.Table) -> Iterator[tuple[str, list[int] | None]]:
        """The row numbers of each file; None for all rows."""
        if not self._parts:
            yield self._sink.path, None
            return
        columns = [_hours(events) if part in ("date", "hour") else events.column(part) for part in self._parts]
        groups, keys = grouped(columns)
        rows_of: dict[str, list[int]] = {}
        for group, values in enumerate(keys):
            path = filled(self._sink.path, dict(zip(self._parts, values, strict=True)))
            rows_of.setdefault(path, []).extend(np.flatnonzero(groups == group).tolist())
        for path, rows in rows_of.items():
            yield path, sorted(rows)

    def _flush(self, path: str) -> None:
        data = b"".join(self._waiting.pop(path))
        del self._waiting_bytes[path]
        if self._sink.compression != "none":
            # Concatenated gzip members or zstd frames are a valid gzip or zstd file.
            data = pa.compress(data, codec=self._sink.compression, asbytes=True)
        self._write(data)
        self._pieces.append(Piece(path, self._staged, self._position, len(data)))
        self._position += len(data)


def _hours(events: pa.Table) -> pa.Array:
    """Hours since 1970 of each event's time, or of the time at which it was observed; null for neither."""
    when = pc.coalesce(events.column("time"), events.column("observed_time")).cast(pa.int64()).combine_chunks()
    micros = pc.fill_null(when, 0).to_numpy(zero_copy_only=False)
    return pa.array(micros // _HOUR_US, mask=when.is_null().to_numpy(zero_copy_only=False))
