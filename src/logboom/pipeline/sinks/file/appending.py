"""Driver side of the sink `file`: appends the pieces of a batch to files, all or none.

Every step is recorded in a durable journal before it is taken: the length of each file before it is appended to, and
each rotation. A batch is committed by one durable file, which also records what was delivered. The journal of a batch
that was not committed is undone, last step first. So a file never keeps half a line, or a line of a batch that will be
repeated.

Knows files. Must not know Spark, events or the content of pieces.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec

from logboom.pipeline.checkpoint.checked import REPEATS, read_checked, write_checked
from logboom.pipeline.checkpoint.files import make_dir, sync_dir, write_durably
from logboom.pipeline.sinks.base import durable_already
from logboom.pipeline.sinks.file import FileSink
from logboom.pipeline.sinks.file.lines import LinesReport, Piece
from logboom.pipeline.sinks.repeats.new_events import Seen

_OPEN_FILES_MAX: Final = 64
_COPY_BYTES: Final = 1 << 20
_LINE_END: Final = b"\n"
Kept = TypeVar("Kept")


class _Extended(msgspec.Struct, frozen=True, tag="extended"):
    """A file that is appended to. `length`: its length before that, None if it did not exist."""

    path: str
    length: int | None
    inode: int | None


class _Moved(msgspec.Struct, frozen=True, tag="moved"):
    """A file that is rotated."""

    path: str
    to: str


class _Journal(msgspec.Struct, frozen=True):
    batch: int
    steps: tuple[_Extended | _Moved, ...]


class LineFiles:
    """The files of one delivery. `directory`: its own, in its checkpoint. `now`: returns seconds since 1970."""

    def __init__(
        self,
        sink: FileSink,
        directory: Path,
        *,
        resolve: Callable[[str], Path],
        now: Callable[[], float],
        notify: Callable[[str], None],
        save: Callable[[], None] = durable_already,
    ) -> None:
        """`save`: as in `SinkContext`."""
        self._sink = sink
        self._save = save
        self._resolve = resolve
        self._now = now
        self._notify = notify
        self._staging = directory / "staging"
        self._committed = directory / "committed.json"
        self._journal = directory / "journal.json"
        self._known = directory / "files.json"
        make_dir(self._staging)
        self.seen = read_checked(self._committed, Seen, REPEATS) if self._committed.exists() else Seen()
        self._is_in_doubt = False
        """Whether the commit file may be on disk although writing it failed."""
        self._ours = set(_read(self._known, list[str]) or ())
        self.undo()

    def staging(self) -> str:
        """Return an empty directory for the pieces of a batch. Undoes what the previous attempt left."""
        self.undo()
        shutil.rmtree(self._staging, ignore_errors=True)
        make_dir(self._staging)
        return str(self._staging)

    def commit(self, batch: int, reports: Iterable[LinesReport]) -> None:
        """Append the pieces of a batch and commit it. After OSError, call `undo`."""
        assert batch > self.seen.batch
        done = list(reports)
        try:
            touched = _Appender(self, batch).append(piece for report in done for piece in report.pieces)
        except OSError:
            with suppress(OSError):  # then the next attempt begins with the undo
                self.undo()
            raise
        seen = self.seen.after(batch, done)
        if not touched <= self._ours:
            self._ours = {path for path in self._ours | touched if Path(path).exists()}
            write_durably(self._known, msgspec.json.encode(sorted(self._ours)))
        self._is_in_doubt = True
        write_checked(self._committed, seen)
        self._is_in_doubt = False
        self.seen = seen
        try:
            self._tidy(touched)
        except OSError as error:  # the batch is committed: errors from here on must not fail it
            self._notify(f"{self._sink.name}: old files are left as they are: {error}")

    def _tidy(self, touched: Iterable[str]) -> None:
        self._journal.unlink(missing_ok=True)
        shutil.rmtree(self._staging, ignore_errors=True)
        for path in touched:
            self._remove_old(Path(path))

    def undo(self) -> None:
        """Undo the file changes of a batch that was not committed."""
        journal = _read(self._journal, _Journal)
        if journal is None:
            return
        if journal.batch > self.seen.batch:
            if self._is_in_doubt:  # otherwise a start would find a commit of lines that are removed
                write_checked(self._committed, self.seen)
                self._is_in_doubt = False
            for step in reversed(journal.steps):
                self._undo(step)
        self._journal.unlink()

    def _undo(self, step: _Extended | _Moved) -> None:
        path = Path(step.path)
        if isinstance(step, _Moved):
            if Path(step.to).exists():
                Path(step.to).rename(path)
                sync_dir(path.parent)
        elif step.length is None:
            path.unlink(missing_ok=True)
            if path.parent.exists():
                sync_dir(path.parent)
        elif path.exists() and path.stat().st_ino == step.inode and path.stat().st_size >= step.length:
            with path.open("r+b") as file:
                file.truncate(step.length)
                os.fsync(file.fileno())
        else:
            self._notify(
                f"{self._sink.name}: {path} was replaced while a batch was being written to it; "
                "the replaced file may have lines that are written again"
            )

    def note(self, batch: int, steps: tuple[_Extended | _Moved, ...]) -> None:
        """Make the steps of a batch durable before they are taken."""
        write_durably(self._journal, msgspec.json.encode(_Journal(batch, steps)))
        self._save()

    def is_due(self, path: Path) -> bool:
        """Whether a file must be rotated before more is written to it."""
        if not path.exists():
            return False
        found = path.stat()
        if self._sink.rotate_bytes is not None and found.st_size >= self._sink.rotate_bytes:
            return True
        every_ms = self._sink.rotate_every_ms
        if every_ms is not None and int(found.st_mtime * 1000) // every_ms != int(self._now() * 1000) // every_ms:
            return True
        return str(path) not in self._ours and found.st_size > 0 and not self._can_follow(path)

    def _can_follow(self, path: Path) -> bool:
        """Whether lines may be appended to an existing file: only if it ends with a newline."""
        if self._sink.compression != "none":
            return False
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == _LINE_END

    def aside(self, path: Path) -> Path:
        """A name for a rotated file: `app.jsonl` becomes `app-20261123T073000Z.jsonl`."""
        stem, dot, suffixes = path.name.partition(".")
        moment = datetime.fromtimestamp(self._now(), UTC).strftime("%Y%m%dT%H%M%SZ")
        numbers = [number for found, number, _ in self._moved_aside(path) if found == moment]
        number = f"-{max(numbers) + 1}" if numbers else ""
        return path.with_name(f"{stem}-{moment}{number}{dot}{suffixes}")

    def _moved_aside(self, path: Path) -> list[tuple[str, int, str]]:
        """Time, number and name of each file that was rotated by `aside`, oldest first."""
        stem, dot, suffixes = path.name.partition(".")
        form = re.compile(rf"{re.escape(stem)}-(\d{{8}}T\d{{6}}Z)(?:-(\d+))?{re.escape(dot + suffixes)}")
        matches = [match for name in os.listdir(path.parent) if (match := form.fullmatch(name))]
        return sorted((match[1], int(match[2] or 1), match[0]) for match in matches)

    def resolve(self, path: str) -> Path:
        """The absolute path of a file."""
        return self._resolve(path)

    def _remove_old(self, path: Path) -> None:
        if self._sink.keep_files is None:
            return
        for _, _, name in self._moved_aside(path)[: -self._sink.keep_files]:
            path.with_name(name).unlink(missing_ok=True)


class _Appender:
    """Appends the pieces of one batch to their files."""

    def __init__(self, files: LineFiles, batch: int) -> None:
        self._files = files
        self._batch = batch
        self._steps: list[_Extended | _Moved] = []
        self._extended: set[Path] = set()
        self._open: dict[Path, BinaryIO] = {}

    def append(self, pieces: Iterable[Piece]) -> set[str]:
        """Return the files that were appended to, all synced."""
        touched: set[str] = set()
        with ExitStack() as stack:
            stack.callback(self._close_all)
            for piece in pieces:
                path = self._files.resolve(piece.path)
                with Path(piece.staged).open("rb") as staged:
                    staged.seek(piece.start)
                    _copy(staged, self._opened(path), piece.size_bytes)
                touched.add(str(path))
            for path in list(self._open):
                self._close(path)
        for directory in {Path(path).parent for path in touched}:
            sync_dir(directory)
        return touched

    def _opened(self, path: Path) -> BinaryIO:
        file = self._open.get(path)
        if file is not None:
            file.flush()
        if self._files.is_due(path):
            self._close(path)
            aside = self._files.aside(path)
            self._step(_Moved(str(path), str(aside)))
            path.rename(aside)
            self._extended.discard(path)
            file = None
        if file is None:
            if len(self._open) >= _OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            if path not in self._extended:
                make_dir(path.parent)
                there = path.stat() if path.exists() else None
                length, inode = (None, None) if there is None else (there.st_size, there.st_ino)
                self._step(_Extended(str(path), length, inode))
                self._extended.add(path)
            file = self._open[path] = path.open("ab")
        return file

    def _step(self, step: _Extended | _Moved) -> None:
        self._steps.append(step)
        self._files.note(self._batch, tuple(self._steps))

    def _close(self, path: Path) -> None:
        file = self._open.pop(path, None)
        if file is not None:
            with file:
                file.flush()
                os.fsync(file.fileno())

    def _close_all(self) -> None:
        """Close files after a failure. Errors are ignored, because the content will be undone."""
        for file in self._open.values():
            try:
                file.close()
            except OSError:
                continue  # the disk is full: closing tries to write the buffer


def _copy(source: BinaryIO, target: BinaryIO, size_bytes: int) -> None:
    left = size_bytes
    while left:
        data = source.read(min(left, _COPY_BYTES))
        if not data:
            raise OSError(f"{source.name} ends {left} bytes too early")
        target.write(data)
        left -= len(data)


def _read(path: Path, kind: type[Kept]) -> Kept | None:
    return msgspec.json.decode(path.read_bytes(), type=kind) if path.exists() else None
