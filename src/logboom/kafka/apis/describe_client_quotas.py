"""DescribeClientQuotas (KIP-546): the quotas that are set for the entities that match a filter."""

from collections import Counter
from typing import Any, Final

from logboom.base.errors import InvalidRequestError, LogboomError
from logboom.kafka.errors import UnsupportedVersionError, error_code, error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class
from logboom.metadata import CLIENT_ID, IP, USER, QuotaEntity

_API_KEY: Final = 48
_EXACT: Final = 0
_DEFAULT: Final = 1
_SPECIFIED: Final = 2
_FILTERS: Final = (_EXACT, _DEFAULT, _SPECIFIED)


def handle(context: RequestContext, request: Any) -> Reply:
    """Every entity that matches."""
    cls = response_class(_API_KEY, context.api_version)
    error, entries = None, None
    try:
        _check(request.components)
        entries = tuple(
            _entry(nested(cls, "entries"), entity, quotas)
            for entity, quotas in context.broker.catalog.quotas.items()
            if _fits(entity, request)
        )
    except LogboomError as refused:
        error = refused
    return make(
        cls,
        throttle_time=milliseconds(0),
        error_code=error_code(error),
        error_message=error_message(error),
        entries=entries,
    )


def _check(components: Any) -> None:
    """Refuse the filters that Kafka refuses. A filter for users is accepted and matches none: there are no users."""
    for kind, times in Counter(component.entity_type for component in components).items():
        if times > 1:
            raise InvalidRequestError(f"the filter names the entity type {kind!r} {times} times")
        if not kind:
            raise InvalidRequestError("the filter has an empty entity type")
        if kind not in (CLIENT_ID, IP, USER):
            raise UnsupportedVersionError(f"{kind!r} is not a type of entity; known: {CLIENT_ID}, {IP}, {USER}")
    for component in components:
        if component.match_type not in _FILTERS:
            raise InvalidRequestError(f"match type {component.match_type} is not known")
        if (component.match_type == _EXACT) != (component.match is not None):
            raise InvalidRequestError("a name goes with match type 0 (exact) and with no other")
    if len(components) > 1 and any(component.entity_type == IP for component in components):
        raise InvalidRequestError(f"a filter for {IP} cannot be combined with others")


def _fits(entity: QuotaEntity, request: Any) -> bool:
    names = dict(entity)
    for component in request.components:
        kind = component.entity_type
        if kind not in names:
            return False
        if component.match_type != _SPECIFIED and names[kind] != component.match:
            return False
    return not request.strict or len(names) == len(request.components)


def _entry(cls: Any, entity: QuotaEntity, quotas: Any) -> Entity:
    whose, values = nested(cls, "entity"), nested(cls, "values")
    return make(
        cls,
        entity=tuple(make(whose, entity_type=kind, entity_name=name) for kind, name in entity),
        values=tuple(make(values, key=name, value=value) for name, value in quotas.items()),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=1, handle=handle)
