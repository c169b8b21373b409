"""AlterPartitionReassignments (KIP-455, KIP-860): move partitions to other replicas, or cancel such a move.

The answer says that a move has begun. It ends when every new replica is in sync: ListPartitionReassignments shows it.
"""

import asyncio
from typing import Any, Final

from logboom.base.errors import InvalidReplicationFactorError, InvalidRequestError, LogboomError
from logboom.kafka.errors import error_code, error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 45
_WITH_FACTOR: Final = 1
_PARALLEL: Final = 16
"""Commands of one request that the controller has before it at the same time."""


async def handle(context: RequestContext, request: Any) -> Reply:
    """Begin or take back each move; each has its own result."""
    cls = response_class(_API_KEY, context.api_version)
    may_change_factor = context.api_version < _WITH_FACTOR or request.allow_replication_factor_change
    topic_cls, gate, seen = nested(cls, "responses"), asyncio.Semaphore(_PARALLEL), set[tuple[str, int]]()

    async def moved(name: str, part: Any) -> Entity:
        error: LogboomError | None = None
        if (name, part.partition_index) in seen:
            error = InvalidRequestError("the request names a partition more than once")
        else:
            seen.add((name, part.partition_index))
            async with gate:
                error = await _move(context, name, part, may_change_factor=may_change_factor)
        return make(
            nested(topic_cls, "partitions"),
            partition_index=part.partition_index,
            error_code=context.code_of(error),
            error_message=error_message(error),
        )

    responses = [
        make(
            topic_cls,
            name=topic.name,
            partitions=tuple(await asyncio.gather(*(moved(topic.name, part) for part in topic.partitions))),
        )
        for topic in request.topics
    ]
    return make(
        cls,
        throttle_time=milliseconds(0),
        allow_replication_factor_change=may_change_factor,
        error_code=error_code(None),
        error_message=None,
        responses=tuple(responses),
    )


async def _move(context: RequestContext, name: str, part: Any, *, may_change_factor: bool) -> LogboomError | None:
    try:
        if not may_change_factor and part.replicas is not None:
            _check_factor(context, name, part)
        await context.broker.cluster_admin.reassign(name, part.partition_index, part.replicas)
    except LogboomError as refused:
        return refused
    return None


def _check_factor(context: RequestContext, name: str, part: Any) -> None:
    stream, index = context.broker.catalog.stream(name), part.partition_index
    if stream is None or not 0 <= index < len(stream.assignments):
        return  # the command says so itself
    before = stream.assignments[index]
    there = len([one for one in before.replicas if one not in before.adding])
    if len(part.replicas) != there:
        raise InvalidReplicationFactorError(
            f"{name}-{index} has {there} replicas, not {len(part.replicas)}, and the request does not allow a change"
        )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=1, handle=handle, changes=True)
