"""Files of classes that a JVM maps, instead of loading and linking thousands of classes one by one.

Knows HotSpot's dynamic class-data sharing (JEP 350) and where caches live. Must not know what the classes are for.

There is one file for the bare JVM of `pipeline check` and one for the session of `pipeline run`. The first JVM of an
installation writes its file when it ends, which takes seconds: `keep` waits for a small file, `adopt` installs at the
next start a larger one that was finished after its run. The files are only a cache: a JVM ignores one that does not
match its class path.
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
"""A file that is not finished after this time is abandoned: its writer was killed."""
_ANNOUNCED: Final = ".announced"
_KEPT: Final = 2
"""Number of archives of one use that are kept: upgraded or moved installations leave files of 70 to 180 MB behind."""
_MAGIC: Final = (0xF00BABA8).to_bytes(4, "little")
"""HotSpot's CDS_DYNAMIC_ARCHIVE_MAGIC. The header, which begins with it, is written last."""


class ClassArchive:
    """The archive for one class path and one Java, and the options with which a JVM reads or writes it.

    `use`: the name of the purpose. `write`: whether a JVM writes an archive when it ends, if there is none.
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
        """Options for the JVM's command line. They suppress its warning about an archive that does not match."""
        quiet = ("-XX:+IgnoreUnrecognizedVMOptions", "-Xshare:auto", "-Xlog:disable")
        if self.exists:
            return (*quiet, f"-XX:SharedArchiveFile={self.path}")
        return (*quiet, f"-XX:ArchiveClassesAtExit={self._new}") if self._write else quiet

    @property
    def is_written(self) -> bool:
        """Whether a JVM with these options writes the archive when it ends."""
        return self._write

    def keep(self, jvm: "subprocess.Popen[bytes]") -> None:
        """Wait for a JVM that is ending and keep the file that it wrote, if it is complete."""
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
        """Mark the file that the JVM will write when it ends as wanted. Files without the mark are removed later."""
        with contextlib.suppress(OSError):
            self._new.with_name(self._new.name + _ANNOUNCED).touch()

    def adopt(self) -> None:
        """Install a file that a JVM finished after its run. While one JVM is writing, no other starts to."""
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
        """Install a finished file, and remove those of other class paths that have not been used for the longest
        time."""
        written.replace(self.path)
        _mark_used(self.path)
        kept = sorted(self._directory.glob(f"{self._use}-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[_KEPT:]:
            path.unlink(missing_ok=True)  # a JVM that has mapped it keeps it
        for path in self._directory.glob(f".{self._use}-*.new"):
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove an archive with which JVMs do not start."""
        self.path.unlink(missing_ok=True)
        self.exists = False


def _is_whole(written: Path) -> bool:
    try:
        with written.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except FileNotFoundError:
        return False


def _mark_used(path: Path) -> None:
    with contextlib.suppress(OSError):  # another user's file, or a read-only file system
        os.utime(path)


def _is_writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)
