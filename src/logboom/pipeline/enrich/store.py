"""The versions of the tables of one pipeline, each a file named by the hash of its content.

A batch is pinned to the versions with which it began, and finds their files here when it is repeated. Knows files and
times. Must not know Spark or how a row is found.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from logboom.pipeline.checkpoint.files import make_dir, write_durably
from logboom.pipeline.enrich.sources import Rows, TableError, encoded, geoip_fault, read_table, version_of
from logboom.pipeline.plan.tables import TableRef

_KEPT: Final = 8
"""How many versions of a table are kept: the last batches may need theirs again."""

Versions = Mapping[str, str]
"""By `TableRef.id`."""
ReadStream = Callable[[TableRef, Rows], Rows]
"""Reads the newest record of each key of a stream. It receives the previous rows, and may change and return them."""


@dataclass(slots=True)
class _Seen:
    """The known state of one table."""

    version: str
    looked_at: float
    mark: tuple[int, int, int] | None
    """For a file: its identity, size and modification time."""
    rows: Rows | None = None


class TableStore:
    """Reads tables when they are due, and keeps their versions in a directory."""

    def __init__(
        self,
        directory: Path,
        base: Path,
        notify: Callable[[str], None],
        read_stream: ReadStream | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`base`: the directory of the pipeline's file. `read_stream`: None if streams cannot be read."""
        self._directory = directory
        self._base = base
        self._notify = notify
        self._read_stream = read_stream
        self._now = now
        self._seen: dict[str, _Seen] = {}
        self._whole: set[Path] = set()

    def current(self, refs: Iterable[TableRef]) -> dict[str, str]:
        """The newest version of each table; tables that are due are read again. If a table can no longer be read, its
        last version stays, which is reported; TableError if it was never read."""
        return {ref.id: self._current(ref) for ref in refs}

    def paths(self, versions: Versions) -> dict[str, bytes]:
        """The files of these versions by `TableRef.id`, for executors."""
        return {name: str(self._path(name, version)).encode() for name, version in versions.items()}

    def missing(self, versions: Versions) -> list[str]:
        """The tables whose versions are missing."""
        return [name for name, version in versions.items() if not self._is_whole(self._path(name, version))]

    def _is_whole(self, path: Path) -> bool:
        """Whether a version exists and matches its hash; checked once per process."""
        if path not in self._whole:
            if not path.exists() or version_of(path.read_bytes()) != path.name:
                return False
            self._whole.add(path)
        return path.exists()

    def _path(self, name: str, version: str) -> Path:
        return self._directory / name.partition(":")[2] / version

    def _current(self, ref: TableRef) -> str:
        seen = self._seen.get(ref.id)
        mark = self._mark(ref)
        if seen is not None and not self._is_due(ref, seen, mark):
            return seen.version
        try:
            data, rows = self._read(ref, seen)
        except TableError as error:
            version = self._newest_kept(ref) if seen is None else seen.version
            if version is None:
                raise
            self._notify(f"{error}; it stays as it was")
            self._seen[ref.id] = _Seen(version, self._now(), mark, None if seen is None else seen.rows)
            return version
        version = version_of(data)
        path = self._path(ref.id, version)
        if self._is_whole(path):
            path.touch()  # the version used last is kept longest
        else:
            make_dir(path.parent)
            write_durably(path, data)
            self._whole.add(path)
            self._forget_old(path)
        self._seen[ref.id] = _Seen(version, self._now(), mark, rows)
        return version

    def _newest_kept(self, ref: TableRef) -> str | None:
        """The version that was used last, perhaps by an earlier process."""
        directory = self._path(ref.id, "")
        there = [path for path in directory.iterdir() if self._is_whole(path)] if directory.is_dir() else []
        return max(there, key=lambda path: path.stat().st_mtime_ns).name if there else None

    def _is_due(self, ref: TableRef, seen: _Seen, mark: tuple[int, int, int] | None) -> bool:
        if mark is not None or seen.mark is not None:
            return mark != seen.mark
        return self._now() - seen.looked_at >= ref.refresh_ms / 1_000

    def _mark(self, ref: TableRef) -> tuple[int, int, int] | None:
        if ref.kind == "stream" or ref.location.startswith(("http://", "https://")):
            return None
        try:
            found = (self._base / ref.location).stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self, ref: TableRef, seen: _Seen | None) -> tuple[bytes, Rows | None]:
        if ref.kind == "geoip":
            return self._read_geoip(ref), None
        if ref.kind != "stream":
            return encoded(read_table(ref, self._base)), None
        if self._read_stream is None:
            raise TableError(f"the table of {ref.name} is the stream {ref.location}, which is not read here")
        rows = self._read_stream(ref, {} if seen is None or seen.rows is None else seen.rows)
        return encoded(rows), rows

    def _read_geoip(self, ref: TableRef) -> bytes:
        """The file, after a copy of the same bytes could be opened: another program may be writing it."""
        try:
            data = (self._base / ref.location).read_bytes()
        except OSError as error:
            raise TableError(f"the table of {ref.name} cannot be read: {ref.location}: {error.strerror}") from error
        directory = self._path(ref.id, "")
        make_dir(directory)
        with tempfile.NamedTemporaryFile(dir=directory) as copy:
            copy.write(data)
            copy.flush()
            fault = geoip_fault(Path(copy.name))
        if fault is not None:
            raise TableError(f"the table of {ref.name}: {ref.location} {fault}")
        return data

    def _forget_old(self, newest: Path) -> None:
        there = sorted(newest.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in [path for path in there if path != newest][: -_KEPT + 1]:
            path.unlink(missing_ok=True)
