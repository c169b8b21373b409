"""The memory of all windows of message ids of one broker: if it is too much, ids are forgotten early.

Windows with ids that are too old anyway lose these first; then the largest window loses its oldest ids, and so on,
until an eighth of the memory is free. A window that a reader thread is filling is left alone until it is returned. On
the loop.
"""

import heapq
from typing import Final, Protocol

from logboom.base.dynamic import Current
from logboom.base.ports import Clock
from logboom.broker.config import BrokerConfig
from logboom.broker.metrics import Counters
from logboom.broker.partition.id_window import IdWindow

_FREED_PART: Final = 8
_GENERATIONS: Final = 64
"""One part in this many of the memory is what a window loses at a time, at most."""


class WindowOwner(Protocol):
    """Who has a window; told apart by identity."""

    def __hash__(self) -> int: ...


class IdMemory:
    """See the module. Life: the broker's."""

    def __init__(self, config: Current[BrokerConfig], clock: Clock, counters: Counters) -> None:
        self._config = config
        self._clock = clock
        self._counters = counters
        self._windows: dict[WindowOwner, IdWindow] = {}
        self._counted: dict[WindowOwner, int] = {}
        self._lent: set[WindowOwner] = set()
        self.held_bytes = 0
        """Of all windows, about."""

    @property
    def generation_bytes_max(self) -> int:
        """What a window should forget at a time, at most."""
        return self._limit_bytes // _GENERATIONS

    @property
    def reload_bytes_max(self) -> int:
        """How much of a log may be read for its ids."""
        return self._config.now.message_ids.reload_max_bytes

    @property
    def _limit_bytes(self) -> int:
        return self._config.now.message_ids.memory_bytes

    def lend(self, owner: WindowOwner) -> None:
        """A thread fills the window of `owner`, which is left alone until `grown` is called for it."""
        self._lent.add(owner)

    def grown(self, owner: WindowOwner, window: IdWindow) -> None:
        """The window of `owner` takes more or less memory than before."""
        self._lent.discard(owner)
        self._windows[owner] = window
        self._count(owner, window.size_bytes)
        if self.held_bytes > self._limit_bytes:
            self._make_room()

    def released(self, owner: WindowOwner) -> None:
        """`owner` has no window any more. Idempotent."""
        if self._windows.pop(owner, None) is not None:
            self._count(owner, 0)
            del self._counted[owner]
        self._lent.discard(owner)

    def _count(self, owner: WindowOwner, size_bytes: int) -> None:
        self.held_bytes += size_bytes - self._counted.get(owner, 0)
        self._counted[owner] = size_bytes

    def _make_room(self) -> None:
        wanted_bytes = self._limit_bytes - self._limit_bytes // _FREED_PART
        now_s = self._clock.monotonic_s()
        here = [(owner, window) for owner, window in self._windows.items() if owner not in self._lent]
        for owner, window in here:
            window.expire(now_s)
            self._count(owner, window.size_bytes)
        biggest = [(-window.size_bytes, place) for place, (_, window) in enumerate(here)]
        heapq.heapify(biggest)
        while biggest and self.held_bytes > wanted_bytes:
            _, place = biggest[0]
            owner, window = here[place]
            self._counters.message_ids_forgotten += window.shrink()
            self._count(owner, window.size_bytes)
            if window.size_bytes:
                heapq.heapreplace(biggest, (-window.size_bytes, place))
            else:
                heapq.heappop(biggest)
