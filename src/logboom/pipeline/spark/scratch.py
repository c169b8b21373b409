"""Directories for a JVM's temporary files, each locked while that JVM lives. What a JVM leaves that is killed, or runs
out of memory, is removed by the next start on the machine, and nothing of one that lives.

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
"""What a JVM has there before its first job: libraries that it unpacks. How much more it takes depends on its jobs."""


class Scratch:
    """One directory in each of some others. The first is also where the JVM tells how it is reached."""

    def __init__(self, roots: Sequence[Path]) -> None:
        """Makes them, where first everything is removed that JVMs have left which have ended.

        :raises JvmEndedError: there is no room, which may change.
        """
        self.directories: list[Path] = []
        self.locks: list[int] = []
        """File descriptors; a directory is in use until all processes that have one have closed it."""
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
                raise PipelineError(f"no directory for temporary files can be made in {root}: {error}") from error

    def _make(self, root: Path) -> None:
        while True:
            directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
            self.directories.append(directory)
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            self.locks.append(lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if directory.exists():  # not taken for one that was left, in the moment before it was locked
                return
            self.directories.pop()
            os.close(self.locks.pop())

    @property
    def java_option(self) -> str:
        """What lets Java write its temporary files there, as a part of a shell's line."""
        return f'"-Djava.io.tmpdir={self.directories[0]}"'

    def unlock(self) -> None:
        """For this process; the JVM goes on to hold the locks that it was given."""
        while self.locks:
            os.close(self.locks.pop())

    def remove(self) -> None:
        """With all that is in them, behind the end of the JVM."""
        for directory in self.directories:
            shutil.rmtree(directory, ignore_errors=True)
        self.unlock()


def _take_room(directory: Path) -> None:
    """OSError where there is none for what every JVM needs."""
    probe = directory / "room"
    try:
        probe.write_bytes(bytes(_NEEDED_BYTES))
    finally:
        probe.unlink(missing_ok=True)


def temporary_directory() -> Path:
    """Where programs of this user have their temporary files.

    :raises JvmEndedError: no file can be written there, nor in other places that are usual.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:  # what Python says where the disk is full, too
        raise JvmEndedError(_no_room(os.environ.get("TMPDIR", "/tmp"))) from error  # noqa: S108 - it is named alone


def _no_room(directory: str) -> str:
    return f"there is no room for Spark's temporary files in {directory} (TMPDIR names another directory)"


def _remove_left(root: Path) -> None:
    """Directories of the same user whose lock nobody holds."""
    for directory in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or another start removes it just now
            found = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(found).st_uid == os.geteuid():
                    fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(found)
