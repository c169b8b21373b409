"""What AlterConfigs and IncrementalAlterConfigs share: which resource is meant, and each resource's own result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from logboom.base.errors import InvalidRequestError, LogboomError, UnknownStreamError
from logboom.kafka.errors import error_code, error_message
from logboom.kafka.handlers.handler import Entity, Reply, RequestContext
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

TOPIC: Final = 2
_BROKER: Final = 4

Changes = Mapping[str, str | None]
"""New values by name; None gives a setting back to its default."""


async def alter_all(
    context: RequestContext,
    request: Any,
    api_key: int,
    changes_of: Callable[[RequestContext, Any], Changes],
    *,
    replace_all: bool,
) -> Reply:
    """Change each resource by itself. `changes_of` reads a resource's changes, or raises LogboomError."""
    cls = response_class(api_key, context.api_version)
    times = Counter((one.resource_type, one.resource_name) for one in request.resources)
    responses: list[Entity] = []
    for resource in request.resources:
        error = None
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequestError(f"the request names {resource.resource_name!r} more than once")
            _check_names(resource)
            change = _change_of(context, resource)
            await change(
                resource.resource_name,
                changes_of(context, resource),
                replace_all=replace_all,
                validate_only=request.validate_only,
            )
        except LogboomError as refused:
            error = refused
        responses.append(
            make(
                nested(cls, "responses"),
                error_code=error_code(error),
                error_message=error_message(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return make(cls, throttle_time=milliseconds(0), responses=tuple(responses))


def _check_names(resource: Any) -> None:
    for name, times in Counter(one.name for one in resource.configs).items():
        if times > 1:
            raise InvalidRequestError(f"the setting {name!r} is named {times} times")


def _change_of(context: RequestContext, resource: Any) -> Callable[..., Awaitable[object]]:
    """What changes the settings of such a resource."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC:
        if context.broker.catalog.stream(name) is None:
            raise UnknownStreamError(f"no stream is named {name!r}")
        return context.broker.catalog.change_stream_config
    if kind == _BROKER:
        context.broker.catalog.check_broker_name(name)
        return context.broker.catalog.change_broker_config
    raise InvalidRequestError(f"resource type {kind} has no settings here")
