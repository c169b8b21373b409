"""The directory of one log, which is renamed when its stream is deleted, while threads still use files in it.

The name of a deleted stream is free at once: the log of a new stream makes files of the same names in a directory of
that name. A thread that the deletion does not wait for, such as one that reads or that removes old segments, must
therefore open and remove files through here, or they may be the new stream's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from logboom.base.ports import Disk, File


class LogDirectory:
    """Where the files of one log are. Any thread."""

    __slots__ = ("_disk", "_lock", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._lock = Lock()
        self.path = path

    def open(self, name: str, *, create: bool = False) -> File:
        """Open a file in it. Raises OSError."""
        # Without the lock: an open that hangs must not hold up the deletion of the stream. The path changes before the
        # directory is renamed, so as long as it is the same after the open, the file is one of this log.
        while True:
            path = self.path
            file = self._disk.open(f"{path}/{name}", create=create)
            if self.path == path:
                return file
            file.close()

    def unlink(self, name: str) -> None:
        """Remove a file in it. Raises OSError."""
        with self.held() as path:
            self._disk.unlink(f"{path}/{name}")

    @contextmanager
    def held(self) -> Iterator[str]:
        """The path, which stays right until the end of the block: for removing and renaming files."""
        with self._lock:
            yield self.path

    def move_to(self, path: str) -> None:
        """Rename it. Waits for the disk. Raises OSError."""
        with self._lock:
            old, self.path = self.path, path
            self._disk.rename(old, path)
