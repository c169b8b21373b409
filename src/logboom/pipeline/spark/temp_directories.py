"""Directories for a JVM's temporary files, each locked while that JVM runs. Files of a JVM that was killed or ran out
of memory are removed by the next start on the machine; those of running JVMs are kept.

Knows the disk and locks. Must not know what a JVM writes there.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from logboom.base.units import MIB
from logboom.pipeline.errors import JvmEndedError, PipelineError

_PREFIX: Final = "logboom-java-"
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_NEEDED_BYTES: Final = MIB
"""Space that a JVM needs before its first job, for libraries that it unpacks. The space for jobs is unknown."""


class Scratch:
    """One directory below each of these. The first one also has the file with the JVM's connection data."""

    def __init__(self, roots: Sequence[Path]) -> None:
        """Create the directories. Those of JVMs that have ended are removed first.

        :raises JvmEndedError: there is no space at the moment.
        """
        self.directories: list[Path] = []
        self.locks: list[int] = []
        """File descriptors of the locks. A directory is in use until all processes with one have closed it."""
        for root in roots:
            try:
                root.mkdir(parents=True, exist_ok=True)
                _remove_left(root)
                self._make(root)
                _take_room(self.directories[-1])
            except OSError as error:
                self.remove()
                if error.errno in _NO_ROOM:
                    raise JvmEndedError(_no_room(str(root))) from error
                raise PipelineError(f"no directory for temporary files can be created in {root}: {error}") from error

    def _make(self, root: Path) -> None:
        while True:
            directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
            self.directories.append(directory)
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            self.locks.append(lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if directory.exists():  # do not treat it as abandoned in the moment before it was locked
                return
            self.directories.pop()
            os.close(self.locks.pop())

    @property
    def java_option(self) -> str:
        """The part of a shell command that makes Java write its temporary files there."""
        return f'"-Djava.io.tmpdir={self.directories[0]}"'

    def unlock(self) -> None:
        """Release the locks in this process. The JVM continues to hold those it has inherited."""
        while self.locks:
            os.close(self.locks.pop())

    def remove(self) -> None:
        """Remove the directories with their content, after the JVM's end."""
        for directory in self.directories:
            shutil.rmtree(directory, ignore_errors=True)
        self.unlock()


def _take_room(directory: Path) -> None:
    """OSError if there is not enough space for what every JVM needs."""
    probe = directory / "room"
    try:
        probe.write_bytes(bytes(_NEEDED_BYTES))
    finally:
        probe.unlink(missing_ok=True)


def temporary_directory() -> Path:
    """The user's directory for temporary files.

    :raises JvmEndedError: no file can be written there, nor in other usual places.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:  # Python raises this if the disk is full, too
        raise JvmEndedError(_no_room(os.environ.get("TMPDIR", "/tmp"))) from error  # noqa: S108 - it is named alone


def _no_room(directory: str) -> str:
    return f"there is no space for Spark's temporary files in {directory} (set TMPDIR to another directory)"


def _remove_left(root: Path) -> None:
    """Directories of the same user whose lock is not held."""
    for directory in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or another start is removing it
            found = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(found).st_uid == os.geteuid():
                    fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(found)
