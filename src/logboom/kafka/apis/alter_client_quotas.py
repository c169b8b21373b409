"""AlterClientQuotas (KIP-546): set and remove quotas of client ids and addresses; each entity has its own result."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from logboom.base.errors import InvalidRequestError, LogboomError
from logboom.kafka.errors import error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class
from logboom.metadata import QuotaEntity, quota_entity

_API_KEY: Final = 49


async def handle(context: RequestContext, request: Any) -> Reply:
    """Change every entity that is valid, all of them in one commit."""
    times = Counter(_key(entry) for entry in request.entries)
    results: list[LogboomError | None] = []
    wanted: list[tuple[QuotaEntity, Mapping[str, float | None]]] = []
    for entry in request.entries:
        try:
            if times[_key(entry)] > 1:
                raise InvalidRequestError("the request names this entity more than once")
            wanted.append((_entity(entry), _changes(entry)))
            results.append(None)
        except LogboomError as refused:
            results.append(refused)
    changed = iter(
        await context.broker.catalog.change_quotas(wanted, validate_only=request.validate_only) if wanted else ()
    )
    results = [next(changed) if refused is None else refused for refused in results]
    return _response(context, request, results)


def _key(entry: Any) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted(((part.entity_type, part.entity_name) for part in entry.entity), key=repr))


def _entity(entry: Any) -> QuotaEntity:
    return quota_entity([(part.entity_type, part.entity_name) for part in entry.entity])


def _changes(entry: Any) -> Mapping[str, float | None]:
    for name, times in Counter(op.key for op in entry.ops).items():
        if times > 1:
            raise InvalidRequestError(f"the quota {name!r} is named {times} times")
    return {op.key: None if op.remove else op.value for op in entry.ops}


def _response(context: RequestContext, request: Any, results: list[LogboomError | None]) -> Reply:
    cls = response_class(_API_KEY, context.api_version)
    one = nested(cls, "entries")
    part = nested(one, "entity")
    return make(
        cls,
        throttle_time=milliseconds(0),
        entries=tuple(
            make(
                one,
                error_code=context.code_of(error),
                error_message=error_message(error),
                entity=tuple(
                    make(part, entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
                ),
            )
            for entry, error in zip(request.entries, results, strict=True)
        ),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=1, handle=handle, changes=True)
