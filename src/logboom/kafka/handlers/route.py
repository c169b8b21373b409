"""From the first eight bytes of a request to its handler, and all that is looked up once per API version."""

from __future__ import annotations

from collections.abc import Mapping

from logboom.kafka.handlers.handler import Handler
from logboom.kafka.metrics import ApiMetrics, KafkaMetrics
from logboom.kafka.wire.messages import request_class, response_class
from logboom.kafka.wire.reading import Reader, reader_for


class Route:
    """One API at one version: its handler, reader, header versions and counters."""

    __slots__ = ("changes", "handler", "metrics", "read", "request_tags", "response_tags", "version")

    def __init__(self, handler: Handler, version: int, metrics: ApiMetrics) -> None:
        request, response = request_class(handler.api_key, version), response_class(handler.api_key, version)
        self.handler = handler
        self.version = version
        self.metrics = metrics
        self.changes = handler.changes
        self.read: Reader = reader_for(handler.api_key, version)
        self.request_tags: bool = request.__header_schema__.__flexible__
        # ApiVersions is answered under a version 0 header at any version: the client may not know the newer one.
        self.response_tags: bool = response.__header_schema__.__flexible__


class Routes:
    """Routes by key and version, made on first use: there are never more than versions served."""

    def __init__(self, handlers: Mapping[int, Handler], metrics: KafkaMetrics) -> None:
        self.handlers = handlers
        self._metrics = metrics
        self._found: dict[int, Route] = {}

    def find(self, api_key: int, version: int) -> Route | None:
        """The route of a request, or None where the API or the version is not served."""
        route = self._found.get(api_key << 16 | version)
        if route is not None:
            return route
        handler = self.handlers.get(api_key)
        if handler is None or not handler.min_version <= version <= handler.max_version:
            return None
        route = self._found[api_key << 16 | version] = Route(handler, version, self._metrics.api(api_key))
        return route
