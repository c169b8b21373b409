"""Files of classes that a JVM maps instead of loading and linking thousands of them one by one.

Knows HotSpot's dynamic class-data sharing (JEP 350) and where caches live. Must not know what the classes are for.

There is one file for the bare JVM of `pipeline check` and one for the session of `pipeline run`. The first JVM of an
installation writes its file when it ends, which takes seconds: `keep` waits for a small one, `adopt` takes up at the
next start what a larger one wrote behind a run that had ended. It is a cache: a JVM refuses a file that does not fit
its class path, and goes on without.
"""

import contextlib
import hashlib
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_WRITE_MAX_S: Final = 60.0
_ABANDONED_S: Final = 900.0
"""A file that is not finished by then was given up: its writer was killed."""
_ANNOUNCED: Final = ".announced"
_KEPT: Final = 2
"""Archives of one use that stay: an installation that was upgraded, or moved, leaves files of 70 to 180 MB behind."""
_MAGIC: Final = (0xF00BABA8).to_bytes(4, "little")
"""HotSpot's CDS_DYNAMIC_ARCHIVE_MAGIC. The header, which begins with it, is written last."""


class ClassArchive:
    """The archive of one class path and one Java, and the options by which a JVM reads or writes it.

    `use` names what the classes are for. `write`: whether a JVM that finds no archive is to write one when it ends.
    """

    def __init__(self, directory: Path, use: str, java: str, class_path: Sequence[str], *, write: bool = True) -> None:
        binary = Path(java).resolve()
        parts = (str(binary), str(binary.stat().st_mtime_ns), *class_path)
        name = f"{use}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"
        self.path = directory / f"{name}.jsa"
        self._directory = directory
        self._use = use
        self._pattern = f".{name}.*.new"
        self._new = directory / f".{name}.{os.getpid()}.new"
        self.exists = self.path.exists()
        if self.exists:
            _mark_used(self.path)
        self._write = write and not self.exists and _is_writable(directory)

    @property
    def options(self) -> tuple[str, ...]:
        """For the JVM's command line. A JVM warns of an archive that does not fit: that must not reach its output."""
        quiet = ("-XX:+IgnoreUnrecognizedVMOptions", "-Xshare:auto", "-Xlog:disable")
        if self.exists:
            return (*quiet, f"-XX:SharedArchiveFile={self.path}")
        return (*quiet, f"-XX:ArchiveClassesAtExit={self._new}") if self._write else quiet

    @property
    def is_written(self) -> bool:
        """Whether a JVM with these options writes it when it ends."""
        return self._write

    def keep(self, jvm: "subprocess.Popen[bytes]") -> None:
        """Waits for a JVM that is ending and keeps the file that it wrote, if it is complete."""
        try:
            whole = jvm.wait(_WRITE_MAX_S) == 0
        except subprocess.TimeoutExpired:
            jvm.kill()
            whole = False
        if not self._write:
            return
        with contextlib.suppress(OSError):
            if whole:
                self._put_in_place(self._new)
            else:
                self._new.unlink(missing_ok=True)

    def announce(self) -> None:
        """Marks the file that the JVM writes when it ends as one to keep; a file without the mark is removed later."""
        with contextlib.suppress(OSError):
            self._new.with_name(self._new.name + _ANNOUNCED).touch()

    def adopt(self) -> None:
        """Puts a file in place that a JVM finished after its run had ended. While one still writes, no other begins."""
        if self.exists:
            return
        with contextlib.suppress(OSError):
            for announced in self._directory.glob(f"{self._pattern}{_ANNOUNCED}"):
                written = announced.with_suffix("")
                if _is_whole(written):
                    self._put_in_place(written)
                    self.exists, self._write = True, False
                elif time.time() - announced.stat().st_mtime <= _ABANDONED_S:
                    self._write = False
                    continue
                announced.unlink()
            for written in self._directory.glob(self._pattern):
                if time.time() - written.stat().st_mtime > _ABANDONED_S:
                    written.unlink()

    def _put_in_place(self, written: Path) -> None:
        """Keeps a finished file, and removes what other class paths left that has not been used for longest."""
        written.replace(self.path)
        _mark_used(self.path)
        kept = sorted(self._directory.glob(f"{self._use}-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[_KEPT:]:
            path.unlink(missing_ok=True)  # a JVM that has it mapped keeps it
        for path in self._directory.glob(f".{self._use}-*.new"):
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink(missing_ok=True)

    def forget(self) -> None:
        """Removes an archive with which no JVM starts."""
        self.path.unlink(missing_ok=True)
        self.exists = False


def _is_whole(written: Path) -> bool:
    try:
        with written.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except FileNotFoundError:
        return False


def _mark_used(path: Path) -> None:
    with contextlib.suppress(OSError):  # another user's, or a file system that is only read
        os.utime(path)


def _is_writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)
