"""ListConfigResources (KIP-1142): what has settings, by kind. Version 0 lists client metrics alone (KIP-1000)."""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.kafka.admin.resources import ResourceType, names_of
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 74


def handle(context: RequestContext, request: Any) -> Reply:
    """List the resources of the kinds that are asked for, of all where none is."""
    cls = response_class(_API_KEY, context.api_version)
    one = nested(cls, "config_resources")
    wanted = (ResourceType.CLIENT_METRICS,) if context.api_version == 0 else request.resource_types or ResourceType
    known = [ResourceType(kind) for kind in dict.fromkeys(wanted) if kind in set(ResourceType)]
    refused = len(known) < len(set(wanted))
    return make(
        cls,
        throttle_time=milliseconds(0),
        error_code=ErrorCode.unsupported_version if refused else ErrorCode.none,
        config_resources=()
        if refused
        else tuple(
            make(one, resource_name=name, resource_type=kind)
            for kind in known
            for name in names_of(context.broker, kind)
        ),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=1, handle=handle)
