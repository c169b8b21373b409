"""Merges the small files of finished hours, so that readers never see a row twice or miss one.

The merged files are written to a second directory, and the two directories are exchanged atomically (renameat2). A
reader that has already listed the old files may fail to open one. A journal records each step, so that the next start
completes or undoes it after a crash.

Knows Parquet files and directories. Must not know Spark, events or deliveries. Only the writer of an archive may call
it, between its commits.
"""

import ctypes
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from logboom.pipeline.checkpoint.files import make_dir, sync_dir, write_durably
from logboom.pipeline.sinks.parquet.archive import HIDDEN
from logboom.pipeline.sinks.parquet.writing import parquet_writer

QUIET_S: Final = 120.0
"""A directory is finished if it got no file for this long."""
_FILES_MIN: Final = 2
_SMALL_SHARE: Final = 0.5
"""Files below this fraction of the target size are merged."""
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


class _Journal(msgspec.Struct, frozen=True):
    directory: str
    beside: str


class Compactor:
    """Merges the small files of one archive."""

    def __init__(
        self, root: Path, *, target_bytes: int, compression: str, now: Callable[[], float] = time.time
    ) -> None:
        self._root = root
        self._target_bytes = target_bytes
        self._compression = compression
        self._now = now
        self._hidden = root / HIDDEN / "compaction"
        make_dir(self._hidden)
        self._journal = self._hidden / "journal.json"
        self.recover()

    def recover(self) -> None:
        """Complete or undo a compaction that was interrupted by a crash."""
        if self._journal.exists():
            left = msgspec.json.decode(self._journal.read_bytes(), type=_Journal)
            # Both directories have all rows. The one in place stays, the other is deleted.
            shutil.rmtree(self._root / left.beside, ignore_errors=True)
            self._journal.unlink()
        for leftover in self._hidden.iterdir():
            shutil.rmtree(leftover)

    def run(self, *, quiet_s: float = QUIET_S, directories_max: int = 1) -> int:
        """Compact up to `limit` finished directories; returns how many were compacted."""
        done = 0
        for directory in self._finished(quiet_s):
            if done >= directories_max:
                break
            done += self._compact(directory)
        return done

    def _finished(self, quiet_s: float) -> Iterator[Path]:
        latest = self._now() - quiet_s
        for folder, folders, files in os.walk(self._root):
            folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
            paths = [Path(folder, name) for name in files if name.endswith(".parquet")]
            small = [path for path in paths if path.stat().st_size < self._target_bytes * _SMALL_SHARE]
            if len(small) >= _FILES_MIN and all(path.stat().st_mtime <= latest for path in paths):
                yield Path(folder)

    def _compact(self, directory: Path) -> bool:
        beside = self._hidden / f"{time.time_ns():x}"
        beside.mkdir()
        small: list[Path] = []
        rest: list[Path] = []
        for path in sorted(directory.glob("*.parquet")):
            (small if path.stat().st_size < self._target_bytes * _SMALL_SHARE else rest).append(path)
        groups = list(self._groups(small))
        if all(len(group) < _FILES_MIN for group in groups):
            beside.rmdir()
            return False
        for path in rest:
            os.link(path, beside / path.name)
        for number, group in enumerate(groups):
            self._merged(group, beside, number)
        sync_dir(beside)
        journal = _Journal(str(directory.relative_to(self._root)), str(beside.relative_to(self._root)))
        write_durably(self._journal, msgspec.json.encode(journal))
        exchange(beside, directory)
        sync_dir(directory.parent)
        sync_dir(self._hidden)
        shutil.rmtree(beside)  # after the exchange this is the old content
        self._journal.unlink()
        return True

    def _groups(self, small: list[Path]) -> Iterator[list[Path]]:
        """Groups of adjacent files whose sum is close to the target size."""
        group: list[Path] = []
        size = 0
        for path in small:
            if group and size + path.stat().st_size > self._target_bytes:
                yield group
                group, size = [], 0
            group.append(path)
            size += path.stat().st_size
        if group:
            yield group

    def _merged(self, group: list[Path], beside: Path, number: int) -> None:
        name = f"compacted-{time.time_ns():x}-{number}.parquet"
        if len(group) == 1:
            os.link(group[0], beside / group[0].name)
            return
        schema = pa.unify_schemas([pq.read_schema(path) for path in group])
        with parquet_writer(beside / name, schema, self._compression) as writer:
            for path in group:
                # `read_table` would add columns from the directory's name. Row groups stay small, because readers load
                # one at a time.
                with pq.ParquetFile(path) as given:
                    for number in range(given.num_row_groups):
                        writer.write_table(given.read_row_group(number).cast(schema))
        with (beside / name).open("rb") as file:
            os.fsync(file.fileno())


def exchange(left: Path, right: Path) -> None:
    """Exchange two directories atomically; OSError if the file system does not support it."""
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (_AT_FDCWD, os.fsencode(left), _AT_FDCWD, os.fsencode(right), _RENAME_EXCHANGE)
    if libc.renameat2(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(right))
