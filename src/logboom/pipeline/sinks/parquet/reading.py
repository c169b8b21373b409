"""Reads an archive back: its files, and their events as columns.

Values in a directory's name (`service=shop`) are not columns of its files; this module adds them. Knows Arrow's file
systems, Parquet and the archive's directories. Must not know deliveries or Spark. Pickled for executors.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import dataset
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from logboom.base.units import MIB
from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.plan.stores import StoreRef
from logboom.pipeline.sinks.parquet.partitioning import NO_VALUE
from logboom.pipeline.sinks.parquet.stores import open_store

_SUFFIX: Final = ".parquet"
_HIDDEN: Final = ("_", ".")
_BATCH_ROWS: Final = 16_384
_BUFFER_BYTES: Final = MIB
"""Bytes of each column that are read at once, in one request if the archive is in an object store."""
_SEEN, _ID = "observed_time", "event_id"
_CHOSEN_BY: Final = (_SEEN, _ID)
_MOMENT: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class ArchiveReader:
    """Reads one archive, which may be written at the same time."""

    root: str
    """Its local directory; unused for an object store."""
    store: StoreRef | None = None

    def files(self) -> list[str]:
        """The files that any reader of the archive sees, as sorted paths relative to its root."""
        files, root = self._opened()
        found = files.get_file_info(FileSelector(root, allow_not_found=True, recursive=True))
        paths = (str(info.path).removeprefix(root).lstrip("/") for info in found if info.type == FileType.File)
        return sorted(path for path in paths if path.endswith(_SUFFIX) and not _is_hidden(path))

    def batches(
        self,
        file: str,
        columns: Sequence[str],
        from_ms: int | None = None,
        to_ms: int | None = None,
        ids: Collection[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """These columns of LIVE_SCHEMA of a file's events, filtered by `observed_time` from `from_ms` to before `to_ms`
        (milliseconds since 1970) and, if `ids` is not empty, by id.

        FileNotFoundError if the file was merged with others after `files` listed it.
        """
        files, root = self._opened()
        named, chosen = _values_of(file), _chosen(from_ms, to_ms, ids)
        with files.open_input_file(f"{root}/{file}") as source:
            # A scan of Arrow's datasets holds a whole row group twice; this holds some pages of each column.
            given = pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            present = given.schema_arrow.names
            read = [name for name in dict.fromkeys((*columns, *_CHOSEN_BY)) if name in present and name not in named]
            groups = _row_groups(given.metadata, from_ms, to_ms)
            for batch in given.iter_batches(_BATCH_ROWS, row_groups=groups, columns=read):
                found = [batch] if chosen is None else pa.Table.from_batches([batch]).filter(chosen).to_batches()
                yield from (_whole(part, columns, named) for part in found if part.num_rows)

    def _opened(self) -> tuple[FileSystem, str]:
        return (LocalFileSystem(), self.root) if self.store is None else open_store(self.store)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(_HIDDEN) for part in path.split("/"))


def _values_of(file: str) -> dict[str, str | None]:
    """The values of events that a file's directories contain.

    >>> _values_of("date=2026-11-20/service=a%2Fb/x.parquet")
    {'date': '2026-11-20', 'service': 'a/b'}
    """
    pairs = (part.partition("=") for part in file.split("/")[:-1])
    return {name: None if value == NO_VALUE else unquote(value) for name, _, value in pairs}


def _row_groups(metadata: pq.FileMetaData, from_ms: int | None, to_ms: int | None) -> list[int]:
    """The row groups that may have events of this time range, by their statistics."""
    column = next((at for at in range(metadata.num_columns) if metadata.schema.column(at).path == _SEEN), None)

    def may_have(number: int) -> bool:
        known = None if column is None else metadata.row_group(number).column(column).statistics
        if known is None or not known.has_min_max:
            return True
        first_us, last_us = known.min_raw, known.max_raw
        return (from_ms is None or last_us >= from_ms * 1_000) and (to_ms is None or first_us < to_ms * 1_000)

    return [number for number in range(metadata.num_row_groups) if may_have(number)]


def _chosen(from_ms: int | None, to_ms: int | None, ids: Collection[str]) -> Any:
    seen, parts = dataset.field(_SEEN), []
    if from_ms is not None:
        parts.append(seen >= _moment(from_ms))
    if to_ms is not None:
        parts.append(seen < _moment(to_ms))
    if ids:
        parts.append(dataset.field(_ID).isin(list(ids)))
    chosen = None
    for part in parts:
        chosen = part if chosen is None else chosen & part
    return chosen


def _moment(at_ms: int) -> pa.Scalar:
    return pa.scalar(at_ms * 1_000, pa.int64()).cast(_MOMENT)


def _whole(batch: pa.RecordBatch, columns: Sequence[str], named: dict[str, str | None]) -> pa.RecordBatch:
    found = []
    for name in columns:
        wanted = LIVE_SCHEMA.field(name).type
        if name in batch.schema.names:
            found.append(batch.column(name).cast(wanted))
        else:  # in the directory's name, or not written by an earlier version
            found.append(pa.repeat(pa.scalar(named.get(name), pa.string()), batch.num_rows).cast(wanted))
    return pa.RecordBatch.from_arrays(found, schema=pa.schema([LIVE_SCHEMA.field(name) for name in columns]))
