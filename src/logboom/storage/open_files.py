"""A limit on the open files of all logs together: beyond it, a file that was not used for a while is closed.

It knows the objects that hold files, not the files. A holder that was evicted opens its file again when it needs it;
reads in progress keep their handle. A file with unsynced bytes is never closed: Linux reports an error of writing them
back only to handles that were open when it happened, so with none the error would be lost. Any thread.
"""

from threading import Lock
from typing import Final, Protocol

UNLIMITED: Final = 2**31
_SCAN_MAX: Final = 256
"""Holders looked at for one to evict: with more in use than that, the limit is exceeded instead."""


class Holder(Protocol):
    """An object that keeps one file open."""

    used: bool
    """Set by the holder whenever it touches its file."""
    unsynced: bool
    """Whether its file must stay open for now."""

    def drop_handle(self) -> None:
        """Forget the file. It is closed when the last read in progress is done with it."""


class OpenFiles:
    """The open files of one log dir, in the order in which they were opened or last found in use."""

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self.eviction_count = 0
        """Files closed to make room for another."""
        self._lock = Lock()
        self._holders: dict[Holder, None] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: Holder) -> None:
        """`holder` has opened its file. May evict others."""
        with self._lock:
            self._holders[holder] = None
            victims = [found for _ in range(len(self._holders) - self.limit) if (found := self._victim(holder))]
        for victim in victims:
            victim.drop_handle()

    def _victim(self, newcomer: Holder) -> Holder | None:
        """The holder opened longest ago that was not used since it was looked at last (the clock algorithm)."""
        for _ in range(min(_SCAN_MAX, 2 * len(self._holders))):
            holder = next(iter(self._holders))
            del self._holders[holder]
            if holder is newcomer or holder.unsynced or holder.used:
                holder.used = False
                self._holders[holder] = None
                continue
            self.eviction_count += 1
            return holder
        return None

    def closed(self, holder: Holder) -> None:
        """`holder` has its file open no more. Idempotent."""
        with self._lock:
            self._holders.pop(holder, None)
