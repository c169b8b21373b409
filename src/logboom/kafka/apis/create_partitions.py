"""CreatePartitions (KIP-195): a stream gets more partitions, never fewer."""

from collections import Counter
from typing import Any, Final

from logboom.base.errors import InvalidRequestError, LogboomError
from logboom.kafka.errors import error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 37


async def handle(context: RequestContext, request: Any) -> Reply:
    """Grow each stream; each has its own result."""
    cls = response_class(_API_KEY, context.api_version)
    counts = Counter(topic.name for topic in request.topics)
    results = {}
    for topic in request.topics:
        if topic.name not in results:
            results[topic.name] = await _grow(context, topic, counts[topic.name], request.validate_only)
    return make(cls, throttle_time=milliseconds(0), results=tuple(results.values()))


async def _grow(context: RequestContext, topic: Any, times: int, validate_only: bool) -> Entity:
    error = None
    try:
        if times > 1:
            raise InvalidRequestError(f"the request names {topic.name!r} {times} times")
        await context.broker.catalog.create_partitions(
            topic.name,
            topic.count,
            assignments=None if topic.assignments is None else [one.broker_ids for one in topic.assignments],
            validate_only=validate_only,
        )
    except LogboomError as refused:
        error = refused
    return make(
        nested(response_class(_API_KEY, context.api_version), "results"),
        name=topic.name,
        error_code=context.code_of(error),
        error_message=error_message(error),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=3, handle=handle, changes=True)
