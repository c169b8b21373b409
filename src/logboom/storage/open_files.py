"""How many files of all logs together are open: beyond a number, one that was not used for a while is let go of.

It knows owners of files, not files: whoever let go opens again when it must, and readers in flight keep what they have.
A file with bytes that were not synced is never let go of, for an error of the disk might be told to nobody then.
Any thread.
"""

from threading import Lock
from typing import Final, Protocol

UNLIMITED: Final = 2**31
_TRIES: Final = 256
"""Owners looked at for one that is let go of: with more than so many in use the limit is passed rather than paid."""


class Owner(Protocol):
    """Who has a file open."""

    used: bool
    """Set by the owner whenever it touches its file."""
    unsynced: bool
    """Whether its file must stay open for now."""

    def drop_handle(self) -> None:
        """Forget the file; it is closed when the last who reads it is done."""


class OpenFiles:
    """The open files of one log dir, in the order in which they were opened or last found in use."""

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self.eviction_count = 0
        """How often one was let go of for another."""
        self._lock = Lock()
        self._owners: dict[Owner, None] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def opened(self, owner: Owner) -> None:
        """It has opened its file."""
        with self._lock:
            self._owners[owner] = None
            victims = [victim for _ in range(len(self._owners) - self.limit) if (victim := self._victim(owner))]
        for victim in victims:
            victim.drop_handle()

    def _victim(self, newcomer: Owner) -> Owner | None:
        """The one opened longest ago that was not used since it was looked at last; the others go to the end."""
        for _ in range(min(_TRIES, 2 * len(self._owners))):
            owner = next(iter(self._owners))
            del self._owners[owner]
            if owner is newcomer or owner.unsynced or owner.used:
                owner.used = False
                self._owners[owner] = None
                continue
            self.eviction_count += 1
            return owner
        return None

    def closed(self, owner: Owner) -> None:
        """It has its file open no more. Idempotent."""
        with self._lock:
            self._owners.pop(owner, None)
