"""Requests that wait for their replies. Pure; times come from the caller."""

from collections import OrderedDict
from typing import Final, NamedTuple

_ENTRY_BYTES: Final = 300
"""What a request takes beside its subjects."""


class Awaited(NamedTuple):
    """A request that a reply belongs to."""

    subject: bytes
    arrived_ns: int


class _Request:
    __slots__ = ("answered", "awaited", "size_bytes")

    def __init__(self, awaited: Awaited, size_bytes: int) -> None:
        self.awaited = awaited
        self.size_bytes = size_bytes
        self.answered = False


class PendingRequests:
    """By reply subject, in the order in which they arrived. A request may have several replies: it is waited for them
    until its time is over."""

    def __init__(self, limit_bytes: int, wait_ns: int) -> None:
        """`limit_bytes`: of memory; at so much the oldest are forgotten. `wait_ns`: how long a reply may take."""
        self._limit_bytes = limit_bytes
        self._wait_ns = wait_ns
        # A plain dict looks through all that was deleted to find its first entry.
        self._requests: OrderedDict[bytes, _Request] = OrderedDict()
        self.size_bytes = 0
        self.unanswered = 0
        """Requests whose time was over without a reply."""
        self.forgotten = 0
        """Requests that had no reply yet when the memory was needed for others."""

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, reply: bytes, subject: bytes, now_ns: int) -> None:
        """Wait for what comes on `reply`."""
        self.expire(now_ns)
        if reply in self._requests:
            self._drop(reply)
        request = _Request(Awaited(subject, now_ns), len(reply) + len(subject) + _ENTRY_BYTES)
        self._requests[reply] = request
        self.size_bytes += request.size_bytes
        while self.size_bytes > self._limit_bytes and len(self._requests) > 1:
            oldest = next(iter(self._requests))
            self.forgotten += not self._requests[oldest].answered
            self._drop(oldest)

    def find(self, reply: bytes, now_ns: int) -> Awaited | None:
        """The request that a reply belongs to, if one is waiting for it."""
        request = self._requests.get(reply)
        if request is None or now_ns - request.awaited.arrived_ns > self._wait_ns:
            return None
        request.answered = True
        return request.awaited

    def expire(self, now_ns: int) -> None:
        """Wait no more for those whose time is over."""
        while self._requests:
            oldest = next(iter(self._requests))
            request = self._requests[oldest]
            if now_ns - request.awaited.arrived_ns <= self._wait_ns:
                return
            self.unanswered += not request.answered
            self._drop(oldest)

    def _drop(self, reply: bytes) -> None:
        self.size_bytes -= self._requests.pop(reply).size_bytes
