"""The usual requests that a door has seen: what they begin with, kept for all its connections, so many and no more.

Knows bytes and routes; what is usual is the affair of each API (`handler.Usual`).
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Any, Final, NamedTuple

from logboom.kafka.handlers.handler import RequestContext, Usual
from logboom.kafka.handlers.route import Route

BEGIN_AT: Final = 8
"""Behind API key, version and correlation id, which differs in each request."""

ELEMENTS: Final = 2
"""What a usual request is reckoned to hold beside its payload: a stream and a partition."""

_CORRELATION_AT: Final = 4
_CORRELATION_ID: Final = Struct(">i")
_BEGIN_BYTES_MAX: Final = 512
_KEPT_MAX: Final = 4096

_ENDS_MAX: Final = 4
"""Lengths of beginnings that are tried on a request: a client has few client ids and lengths of streams' names."""


class Known(NamedTuple):
    """A kind of request that was seen before."""

    route: Route
    usual: Usual
    client: bytes
    """Client id in its header."""


class Run(NamedTuple):
    """Requests of one kind that came one behind the other."""

    known: Known
    correlation_ids: list[int]
    payloads: list[memoryview]
    size_bytes: int
    """Bytes of the requests."""


class Usuals:
    """Life: that of the door."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, Known] = {}

    def find(self, frame: bytearray, end: int, client: bytes) -> Known | None:
        """The kind that begins as `frame` does up to `end`, as far as its client is this one."""
        known = self._known.get(bytes(frame[BEGIN_AT:end]))
        return known if known is not None and known.client == client else None

    def keep(self, known: Known) -> bool:
        """Remember a kind; False where it begins with more bytes than are worth it."""
        begin = known.usual.begin
        if len(begin) > _BEGIN_BYTES_MAX:
            return False
        if len(self._known) >= _KEPT_MAX:
            self._known.clear()  # those in use come back with their next request
        self._known[begin] = known
        return True


class Recent:
    """The usual requests of one connection, whose client is known. Life: that of the connection."""

    __slots__ = ("_client", "_ends", "_last", "_usuals")

    def __init__(self, usuals: Usuals) -> None:
        self._usuals = usuals
        self.forget(b"")

    def forget(self, client: bytes) -> None:
        """Another client id speaks from now on."""
        self._client = client
        self._last: Known | None = None
        self._ends: tuple[int, ...] = ()

    def learn(self, route: Route, context: RequestContext, frame: bytearray, position: int, request: Any) -> None:
        """Keep what a request that was read in full begins with, where more of its kind may come."""
        assert route.handler.usual is not None
        usual = route.handler.usual(context, frame, position, request)
        if usual is None:
            return
        known = Known(route, usual, self._client)
        if self._usuals.keep(known):
            self._last = known
            if usual.end not in self._ends:
                self._ends = (*self._ends[1 - _ENDS_MAX :], usual.end)

    def take_run(self, backlog: deque[bytearray], requests_max: int, elements_bytes: int, bytes_max: int) -> Run | None:
        """Take the requests at the head of the backlog that are of one kind, at least one; None where the first is new.

        No more than `requests_max`, and none once `bytes_max` are taken, each with `elements_bytes` beside its own.
        """
        known, payload = self._like(backlog[0])
        if known is None:
            return None
        correlation_ids: list[int] = []
        payloads: list[memoryview] = []
        size_bytes = 0
        payload_of = known.usual.payload_of
        while payload is not None:
            frame = backlog.popleft()
            payloads.append(payload)
            correlation_ids.append(_CORRELATION_ID.unpack_from(frame, _CORRELATION_AT)[0])
            size_bytes += len(frame)
            count = len(payloads)
            more = backlog and count < requests_max and size_bytes + count * elements_bytes < bytes_max
            payload = payload_of(backlog[0]) if more else None
        return Run(known, correlation_ids, payloads, size_bytes)

    def _like(self, frame: bytearray) -> tuple[Known, memoryview] | tuple[None, None]:
        """The kind a request is of, if that was seen before, and its payload; mostly it is as the one before it."""
        known = self._last
        if known is not None and (payload := known.usual.payload_of(frame)) is not None:
            return known, payload
        for end in self._ends:
            known = self._usuals.find(frame, end, self._client)
            if known is not None and (payload := known.usual.payload_of(frame)) is not None:
                self._last = known
                return known, payload
        return None, None
