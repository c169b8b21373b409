"""DescribeConfigs (KIP-133, KIP-226, KIP-569): settings of streams and of the broker, and where each comes from."""

from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

from logboom.base.errors import InvalidRequestError, LogboomError, UnknownStreamError
from logboom.kafka.admin.configs import Described, describe_all_brokers, describe_broker, describe_stream
from logboom.kafka.admin.listener_settings import describe_advertised
from logboom.kafka.admin.loggers import describe_loggers
from logboom.kafka.admin.resources import ResourceType
from logboom.kafka.errors import error_code, error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 32


def handle(context: RequestContext, request: Any) -> Reply:
    """Describe each resource, once."""
    cls = response_class(_API_KEY, context.api_version)
    wanted = _wanted(request.resources)
    results = tuple(_result(context, request, resource, keys) for resource, keys in wanted.values())
    return make(cls, throttle_time=milliseconds(0), results=results)


_Keys = set[str] | None
"""Names of the requested settings; None for all."""


def _wanted(resources: Iterable[Any]) -> dict[tuple[int, str], tuple[Any, _Keys]]:
    """Each resource once, however often it is named, with all settings that are requested of it."""
    wanted: dict[tuple[int, str], tuple[Any, _Keys]] = {}
    for resource in resources:
        keys: _Keys = None if resource.configuration_keys is None else set(resource.configuration_keys)
        name = resource.resource_type, resource.resource_name
        if name in wanted:
            _, others = wanted[name]
            keys = None if keys is None or others is None else others | keys
        wanted[name] = resource, keys
    return wanted


def _result(context: RequestContext, request: Any, resource: Any, keys: _Keys) -> Entity:
    cls = nested(response_class(_API_KEY, context.api_version), "results")
    error = None
    described: Iterable[Described] = ()
    try:
        described = _describe(context, resource)
    except LogboomError as refused:
        error = refused
    return make(
        cls,
        error_code=error_code(error),
        error_message=error_message(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            _config(nested(cls, "configs"), request, one) for one in described if keys is None or one.name in keys
        ),
    )


def _describe(context: RequestContext, resource: Any) -> Iterable[Described]:
    kind = resource.resource_type
    if kind == ResourceType.TOPIC:
        stream = context.broker.catalog.stream(resource.resource_name)
        if stream is None:
            raise UnknownStreamError(f"no stream is named {resource.resource_name!r}")
        return describe_stream(context.broker, stream)
    if kind == ResourceType.BROKER:
        context.broker.catalog.check_broker_name(resource.resource_name)
        if not resource.resource_name:
            return describe_all_brokers(context.broker)
        return chain(describe_broker(context.broker), (describe_advertised(context.server.cluster.own_address),))
    if kind == ResourceType.BROKER_LOGGER:
        if not resource.resource_name:
            raise InvalidRequestError("loggers belong to a broker: name the broker")
        context.broker.catalog.check_broker_name(resource.resource_name)
        return describe_loggers(context.broker)
    if kind in (ResourceType.CLIENT_METRICS, ResourceType.GROUP):
        if not resource.resource_name:
            raise InvalidRequestError("a group, or a subscription to the metrics of clients, needs a name")
        return ()  # as Kafka for a name that was given no settings
    raise InvalidRequestError(f"resource type {kind} has no settings here")


def _config(cls: Any, request: Any, one: Described) -> Entity:
    synonyms = one.synonyms if request.include_synonyms else ()
    return make(
        cls,
        name=one.name,
        value=one.value,
        read_only=one.read_only,
        config_source=one.source,
        is_sensitive=one.sensitive,
        synonyms=tuple(
            make(nested(cls, "synonyms"), name=name, value=value, source=source) for name, value, source in synonyms
        ),
        config_type=one.type,
        documentation=one.documentation if getattr(request, "include_documentation", False) else None,
    )


HANDLER = Handler(api_key=_API_KEY, min_version=1, max_version=4, handle=handle)
