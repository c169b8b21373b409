"""Removing large files: the name goes at once, the room a piece at a time.

A file system that discards what is freed (the mount option `discard`) keeps the device busy for 10 to 20 ms with a file
of 64 MB, and every sync of another file waits behind that. So such a file is kept open over its removal, and a thread
cuts it shorter, with a rest after each piece, before it is closed for good (decision 22).

Readers that have it open must not see it become shorter. Whether there are any, in this process or another one, is the
kernel's to say: it gives a write lease (fcntl(2), F_SETLEASE) only where nobody else has the file open. A file that has
another name, as backups by hard links give it, is left alone.

Nothing waits for the thread: where the process ends first, the kernel frees the rest.
"""

import errno
import fcntl
import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import Final

from logboom.base.units import MIB

_LARGE_BYTES: Final = 8 * MIB
"""Smaller files are removed as a whole."""
_PIECE_BYTES: Final = 2 * MIB
_REST_MIN_S: Final = 0.004
_RESTS: Final = 3
"""The device is left to others for this many times as long as a piece took."""
_LOOK_AGAIN_S: Final = 0.05
_READERS_END_WITHIN_S: Final = 60.0
"""Where a file is read for longer than that, its last reader frees it: as long as Kafka's `file.delete.delay.ms`."""
_FILES_MAX: Final = 256
"""Each takes a descriptor. Beyond that, files are removed as a whole."""
_SET_LEASE: Final[int | None] = getattr(fcntl, "F_SETLEASE", None)


class Reclaimer:
    """The removed files of one directory tree whose room is still to be given back. Any thread.

    Its own thread runs only as long as there are any.
    """

    __slots__ = ("_files", "_lock", "_runs")

    def __init__(self) -> None:
        self._lock = Lock()
        self._files: dict[int, float] = {}
        """Descriptors, and when each file was removed."""
        self._runs = False

    @contextmanager
    def removal(self, path: str) -> Iterator[None]:
        """Around what removes the file of this name, or puts another one in its place."""
        fd = self._kept_open(path)
        try:
            yield
        except BaseException:  # whatever the body raises, the descriptor is closed
            if fd is not None:
                os.close(fd)
            raise
        if fd is not None:
            self._add(fd)

    def _kept_open(self, path: str) -> int | None:
        """The file, opened, if it is large; None where it is to be removed like any other."""
        if _SET_LEASE is None or len(self._files) >= _FILES_MAX:
            return None
        try:
            found = os.lstat(path)
            if not stat.S_ISREG(found.st_mode) or found.st_size < _LARGE_BYTES:
                return None
            return os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # there is none, or no handle is left
            return None

    def _add(self, fd: int) -> None:
        with self._lock:
            self._files[fd] = time.monotonic()
            if self._runs:
                return
            self._runs = True
        try:
            Thread(target=self._run, name="reclaim", daemon=True).start()
        except RuntimeError:  # no thread can be started, or the interpreter is about to end
            with self._lock:
                self._runs = False
                files, self._files = self._files, {}
            for each in files:
                os.close(each)

    def _run(self) -> None:
        while files := self._left():
            ended = [fd for fd, removed_s in files.items() if _gave_back(fd, removed_s)]
            with self._lock:
                for fd in ended:
                    del self._files[fd]
            for fd in ended:
                os.close(fd)
            if not ended:
                time.sleep(_LOOK_AGAIN_S)

    def _left(self) -> dict[int, float]:
        with self._lock:
            self._runs = bool(self._files)
            return dict(self._files)


def _gave_back(fd: int, removed_s: float) -> bool:
    """Give back the room of a removed file, unless somebody reads it; whether its descriptor is to be closed."""
    try:
        if os.fstat(fd).st_nlink:
            return True
        if not _is_read(fd):
            _cut(fd)
            return True
    except OSError:  # no leases on this file system, or no writing any more: closing it is all that is left
        return True
    return time.monotonic() - removed_s >= _READERS_END_WITHIN_S


def _is_read(fd: int) -> bool:
    """Whether anybody else has the file open. Its name is gone, so nobody can open it after this. Raises OSError."""
    assert _SET_LEASE is not None
    # Who breaks a lease makes the kernel send SIGIO, which ends a process that does not expect it. Nobody should be
    # able to, but for the moment that the lease is held, it is a signal that is ignored.
    with suppress(AttributeError):
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(fd, _SET_LEASE, fcntl.F_WRLCK)
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
        return True
    fcntl.fcntl(fd, _SET_LEASE, fcntl.F_UNLCK)
    return False


def _cut(fd: int) -> None:
    """Make the file shorter and shorter, until one piece is left."""
    size_bytes = os.fstat(fd).st_size - _PIECE_BYTES
    while size_bytes > 0:
        began_s = time.monotonic()
        os.ftruncate(fd, size_bytes)
        time.sleep(max(_REST_MIN_S, _RESTS * (time.monotonic() - began_s)))
        size_bytes -= _PIECE_BYTES
