"""Syncs that the kernel does beside the event loop: each is begun by a system call, and an eventfd tells of its end.

What `LinuxAioQueue` and `IoUringQueue` share. Knows descriptors; not what is synced, nor when it is better to use a
thread.
"""

import asyncio
import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Final

from logboom.base.ports import SyncFailedError

SyncDone = Callable[[OSError | None], None]

QUEUE_MAX: Final = 64
"""Syncs under way at a time."""
_BUSY: Final = (errno.EAGAIN, errno.ENOMEM, errno.EBUSY, errno.EMFILE, errno.ENFILE)


class SyncQueue(ABC):
    """Life: made on the loop that its callbacks run on, `close`d there."""

    def __init__(self) -> None:
        """Raises OSError where the kernel, or what it is confined by, refuses; NotImplementedError where the event loop
        watches no descriptors."""
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._done: dict[int, SyncDone] = {}
        self._last = 0
        self._refused = False
        self._loop = asyncio.get_running_loop()
        try:
            self._open(self._eventfd)
        except OSError:
            os.close(self._eventfd)
            raise
        try:
            self._loop.add_reader(self._eventfd, self._on_ready)
        except NotImplementedError:
            self._release()
            os.close(self._eventfd)
            raise

    def submit(self, fd: int, done: SyncDone) -> bool:
        """Begin an fdatasync; `done` is called on the loop. False: nothing was begun, and a thread must do it."""
        if self._refused or len(self._done) >= QUEUE_MAX:
            return False
        self._last = number = self._last + 1
        try:
            self._begin(number, fd)
        except OSError as error:
            self._refused = error.errno not in _BUSY  # it would say so every time
            return False
        self._done[number] = done
        return True

    def close(self) -> None:
        """Watch no more. A sync that has not ended is not waited for."""
        self._loop.remove_reader(self._eventfd)
        if not self._done:
            self._release()
            os.close(self._eventfd)

    def _on_ready(self) -> None:
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return
        for number, result in list(self._ended()):
            done = self._done.pop(number)
            done(None if result >= 0 else SyncFailedError(-result, os.strerror(-result)))

    @abstractmethod
    def _open(self, eventfd: int) -> None:
        """Begin; the eventfd is to be raised at the end of each sync. Raises OSError, with nothing left behind."""

    @abstractmethod
    def _begin(self, number: int, fd: int) -> None:
        """Begin an fdatasync of this number. The descriptor may be closed as soon as this returns. Raises OSError."""

    @abstractmethod
    def _ended(self) -> Iterable[tuple[int, int]]:
        """The numbers of those that have ended since this was asked last, each with 0 or a negative errno."""

    @abstractmethod
    def _release(self) -> None:
        """Give back what `_open` took. Nothing is under way."""
