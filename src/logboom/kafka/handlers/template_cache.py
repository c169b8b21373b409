"""Requests that differ from an earlier one in their payload alone, recognised by comparing bytes.

A producer sends the same header, stream, partition and acks with every batch. So what such a request begins with is
kept, for all connections of the server, and the next request that begins with the same bytes is not parsed. This module
knows bytes and routes; which requests have a template is each API's to say (`handler.RequestTemplate`).
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Any, Final, NamedTuple

from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import RequestTemplate
from logboom.kafka.handlers.route import Route

PREFIX_START: Final = 8
"""Behind API key, version and correlation id; the last of these differs in each request."""

TEMPLATE_ELEMENTS: Final = 2
"""Elements that a matching request is taken to have besides its payload: a stream and a partition."""

_CORRELATION_AT: Final = 4
_CORRELATION_ID: Final = Struct(">i")
_PREFIX_BYTES_MAX: Final = 512
_TEMPLATES_MAX: Final = 4096

_LENGTHS_MAX: Final = 4
"""Prefix lengths that are tried on a request: a client uses few client ids and few lengths of stream names."""


class CachedTemplate(NamedTuple):
    """A template, and the client and route it belongs to."""

    route: Route
    template: RequestTemplate
    client: bytes
    """The client id in the request header."""


class RequestRun(NamedTuple):
    """Requests that came one after the other and match one template."""

    cached: CachedTemplate
    correlation_ids: list[int]
    payloads: list[memoryview]
    size_bytes: int
    """The total size of the requests."""


class TemplateCache:
    """The templates of one server."""

    __slots__ = ("_templates",)

    def __init__(self) -> None:
        self._templates: dict[bytes, CachedTemplate] = {}

    def find(self, frame: bytearray, prefix_end: int, client: bytes) -> CachedTemplate | None:
        """The template whose prefix is the request's bytes up to `prefix_end`, if it belongs to this client."""
        cached = self._templates.get(bytes(frame[PREFIX_START:prefix_end]))
        return cached if cached is not None and cached.client == client else None

    def add(self, cached: CachedTemplate) -> bool:
        """Remember a template; returns False if its prefix is too long to be worth it."""
        prefix = cached.template.prefix
        if len(prefix) > _PREFIX_BYTES_MAX:
            return False
        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()  # those in use come back with their next request
        self._templates[prefix] = cached
        return True


class TemplateMatcher:
    """Matches the requests of one connection, whose client id is known."""

    __slots__ = ("_cache", "_client", "_last", "_prefix_ends")

    def __init__(self, cache: TemplateCache) -> None:
        self._cache = cache
        self.reset(b"")

    def reset(self, client: bytes) -> None:
        """Forget earlier matches: the client id has changed."""
        self._client = client
        self._last: CachedTemplate | None = None
        self._prefix_ends: tuple[int, ...] = ()

    def learn(self, route: Route, context: RequestContext, frame: bytearray, position: int, request: Any) -> None:
        """Make a template of a request that was parsed, where its API finds one."""
        assert route.handler.template_of is not None
        template = route.handler.template_of(context, frame, position, request)
        if template is None:
            return
        cached = CachedTemplate(route, template, self._client)
        if self._cache.add(cached):
            self._last = cached
            if template.prefix_end not in self._prefix_ends:
                self._prefix_ends = (*self._prefix_ends[1 - _LENGTHS_MAX :], template.prefix_end)

    def take_run(
        self, backlog: deque[bytearray], requests_max: int, elements_bytes: int, bytes_max: int
    ) -> RequestRun | None:
        """Take the requests at the head of the backlog that match one template; None where the first matches none.

        At most `requests_max`, and no more once they have `bytes_max` bytes, counting `elements_bytes` for each beside
        its own size.
        """
        cached, payload = self._match(backlog[0])
        if cached is None:
            return None
        correlation_ids: list[int] = []
        payloads: list[memoryview] = []
        size_bytes = 0
        payload_of = cached.template.payload_of
        while payload is not None:
            frame = backlog.popleft()
            payloads.append(payload)
            correlation_ids.append(_CORRELATION_ID.unpack_from(frame, _CORRELATION_AT)[0])
            size_bytes += len(frame)
            count = len(payloads)
            more = backlog and count < requests_max and size_bytes + count * elements_bytes < bytes_max
            payload = payload_of(backlog[0]) if more else None
        return RequestRun(cached, correlation_ids, payloads, size_bytes)

    def _match(self, frame: bytearray) -> tuple[CachedTemplate, memoryview] | tuple[None, None]:
        """The template of a request, and its payload. Usually it is the template of the request before."""
        cached = self._last
        if cached is not None and (payload := cached.template.payload_of(frame)) is not None:
            return cached, payload
        for prefix_end in self._prefix_ends:
            cached = self._cache.find(frame, prefix_end, self._client)
            if cached is not None and (payload := cached.template.payload_of(frame)) is not None:
                self._last = cached
                return cached, payload
        return None, None
