"""Every API that is served, and how to get from the first eight bytes of a request to its handler.

An API is a module in `logboom.kafka.apis` with a HANDLER; being there is being served. Nothing else lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from logboom.kafka import apis
from logboom.kafka.handlers.handler import Handler
from logboom.kafka.metrics import ApiMetrics, KafkaMetrics
from logboom.kafka.wire.messages import request_class, response_class
from logboom.kafka.wire.reading import Reader, reader_for


@cache
def load_handlers() -> Mapping[int, Handler]:
    """The handlers by API key."""
    modules = [import_module(f"{apis.__name__}.{module.name}") for module in iter_modules(apis.__path__)]
    handlers = {module.HANDLER.api_key: module.HANDLER for module in modules}
    assert len(handlers) == len(modules), "two modules serve one API"
    return MappingProxyType(dict(sorted(handlers.items())))


class Route:
    """One API at one version, with all that is looked up once: reader, header kinds, writer, counters."""

    __slots__ = ("alone", "handler", "metrics", "read", "request_tags", "response_tags", "version")

    def __init__(self, handler: Handler, version: int, metrics: ApiMetrics) -> None:
        request, response = request_class(handler.api_key, version), response_class(handler.api_key, version)
        self.handler = handler
        self.version = version
        self.metrics = metrics
        self.alone = handler.alone
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
