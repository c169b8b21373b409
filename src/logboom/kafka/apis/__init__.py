"""One file per Kafka API: its handlers' room.

A module here with a `HANDLER` is an API that is served and that ApiVersions names; nothing else lists it. A handler
translates: kio's request entity to calls of the broker, their results to a response entity, errors to codes by the one
table in `kafka.errors`. Two APIs are longer than that and have rooms of their own, `produce` and `fetch`; what the
administration APIs share is in `admin`.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from logboom.kafka.handlers.handler import Handler


@cache
def load_handlers() -> Mapping[int, Handler]:
    """The handlers of every API that is served, by API key."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    handlers = {module.HANDLER.api_key: module.HANDLER for module in modules}
    assert len(handlers) == len(modules), "two modules serve one API"
    return MappingProxyType(dict(sorted(handlers.items())))
