"""A file of classes that the JVM of `pipeline check` maps instead of loading and linking 5,700 of them one by one.

Knows HotSpot's dynamic class-data sharing (JEP 350) and where caches live. Must not know what the classes are for.

Measured on a quiet machine: 1.1 s with it, 2.5 s without. The first check of an installation writes it, which takes
some seconds more, once. It is a cache: the JVM refuses one that does not fit its class path, and goes on without.
"""

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_WRITE_MAX_S: Final = 60.0


class ClassArchive:
    """The archive of one class path and one Java, and the options by which a JVM reads or writes it."""

    def __init__(self, directory: Path, java: str, class_path: Sequence[str]) -> None:
        binary = Path(java).resolve()
        parts = (str(binary), str(binary.stat().st_mtime_ns), *class_path)
        name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        self.path = directory / f"check-{name}.jsa"
        self._new = directory / f".check-{name}.{os.getpid()}.new"
        self.exists = self.path.exists()
        self._writable = not self.exists and _is_writable(directory)

    @property
    def options(self) -> tuple[str, ...]:
        """For the JVM's command line. What it would say of an archive that does not fit must not reach its output."""
        quiet = ("-XX:+IgnoreUnrecognizedVMOptions", "-Xshare:auto", "-Xlog:disable")
        if self.exists:
            return (*quiet, f"-XX:SharedArchiveFile={self.path}")
        return (*quiet, f"-XX:ArchiveClassesAtExit={self._new}") if self._writable else quiet

    def keep(self, jvm: "subprocess.Popen[bytes]") -> None:
        """Waits for a JVM that was told to end; what it wrote counts if it is whole."""
        try:
            whole = jvm.wait(_WRITE_MAX_S) == 0
        except subprocess.TimeoutExpired:
            jvm.kill()
            whole = False
        if not self._writable:
            return
        with contextlib.suppress(OSError):
            if whole:
                self._new.replace(self.path)
            else:
                self._new.unlink(missing_ok=True)

    def forget(self) -> None:
        """Removes an archive with which no JVM starts."""
        self.path.unlink(missing_ok=True)
        self.exists = False


def _is_writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)
