"""Deadlines by key, of which the earliest is known at any time. Times are plain numbers in ms, of any clock."""

import heapq
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=tuple[str, ...])

_STALE_MIN: Final = 64
"""Below this many entries a rebuild of the heap is not worth it."""


class Timers(Generic[K]):
    """One deadline per key. Postponing one, as every heartbeat does, costs no heap operation until it is due."""

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []

    def set(self, key: K, deadline_ms: int) -> None:
        """Set or move a deadline."""
        before = self._deadlines.get(key)
        self._deadlines[key] = deadline_ms
        if before is None or deadline_ms < before:
            heapq.heappush(self._heap, (deadline_ms, key))
            self._shrink()

    def cancel(self, key: K) -> None:
        """Drop a deadline, if there is one."""
        self._deadlines.pop(key, None)

    def clear(self) -> None:
        """Drop all."""
        self._deadlines.clear()
        self._heap.clear()

    def next_ms(self) -> int | None:
        """The earliest deadline."""
        while self._heap:
            entry_ms, key = self._heap[0]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms == entry_ms:
                return entry_ms
            heapq.heappop(self._heap)
            if deadline_ms is not None and deadline_ms > entry_ms:
                heapq.heappush(self._heap, (deadline_ms, key))
        return None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return one key whose deadline has passed, earliest first; None where there is none."""
        next_ms = self.next_ms()
        if next_ms is None or next_ms > now_ms:
            return None
        _, key = heapq.heappop(self._heap)
        del self._deadlines[key]
        return key

    def _shrink(self) -> None:
        """Rebuild the heap where stale entries of cancelled keys outnumber the live ones."""
        if len(self._heap) > 2 * len(self._deadlines) + _STALE_MIN:
            self._heap = [(deadline_ms, key) for key, deadline_ms in self._deadlines.items()]
            heapq.heapify(self._heap)
