"""The bounded set of open file handles of one input: opened when a file is read, given back when others need the room.

Handles count against the process's limit, and an input may match more files than that. Knows handles and identities;
not what is read.
"""

import os
from collections.abc import Callable

from logboom.collector.tail import Identity
from logboom.collector.watch import WatchedFile


class OpenHandles:
    """At most `limit` open files, in the order in which they were last read; detached ones may exceed it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_use: dict[WatchedFile, None] = {}

    def __len__(self) -> int:
        return len(self._by_use)

    def open(self, path: str) -> int:
        """A handle for a file that is not watched yet; `add` it with its watch. OSError as the system says."""
        self._make_room()
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def add(self, watch: WatchedFile) -> None:
        """Count a watch that holds a handle."""
        self._by_use[watch] = None

    def forget(self, watch: WatchedFile) -> None:
        """Stop counting a watch whose handle was taken over by another."""
        self._by_use.pop(watch, None)

    def mark_used(self, watch: WatchedFile) -> None:
        """It was read just now: it is the last to be closed."""
        self._by_use[watch] = self._by_use.pop(watch)

    def reopen(self, watch: WatchedFile, path: str) -> bool:
        """Open a watched file again; False if the path does not lead to the same file any more."""
        try:
            handle = self.open(path)
        except OSError:
            return False
        status = os.fstat(handle)
        if Identity(status.st_dev, status.st_ino) != watch.identity:
            os.close(handle)
            return False
        watch.tail.take_handle(handle)
        watch.tail.location = path
        self.add(watch)
        return True

    def release(self, watch: WatchedFile) -> None:
        """Close the handle of a watch. Idempotent."""
        watch.tail.release()
        self.forget(watch)

    def close(self) -> None:
        """Close every handle."""
        for watch in list(self._by_use):
            self.release(watch)

    def _make_room(self) -> None:
        # A detached file is never closed for room: nothing leads back to it. The limit gives way instead.
        while len(self._by_use) >= self._limit:
            victim = self._oldest(lambda watch: not watch.is_queued) or self._oldest(lambda watch: True)
            if victim is None:
                return
            self.release(victim)

    def _oldest(self, is_wanted: Callable[[WatchedFile], bool]) -> WatchedFile | None:
        return next((watch for watch in self._by_use if not watch.is_detached and is_wanted(watch)), None)
