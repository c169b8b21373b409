"""DescribeLogDirs (KIP-113, KIP-827): the log dir, its room, and the sizes of the partitions in it."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from logboom.base.errors import LogboomError
from logboom.broker.partition.replica import Partition
from logboom.kafka.errors import error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 35


async def handle(context: RequestContext, request: Any) -> Reply:
    """The one log dir, with the requested partitions or all of them."""
    cls = response_class(_API_KEY, context.api_version)
    state = await asyncio.to_thread(context.broker.health.log_dir)
    result = make(
        nested(cls, "results"),
        error_code=error_code(state.failure),
        log_dir=state.path,
        topics=tuple(_topics(context, nested(cls, "results", "topics"), request.topics)),
        total_bytes=state.total_bytes,
        usable_bytes=state.usable_bytes,
        is_cordoned=False,
    )
    return make(cls, throttle_time=milliseconds(0), error_code=error_code(None), results=(result,))


def _topics(context: RequestContext, cls: Any, wanted: Any) -> Iterator[Entity]:
    if wanted is None:
        pairs = [(stream.name, range(stream.partitions)) for stream in context.broker.catalog.streams().values()]
    else:
        pairs = [(topic.topic, topic.partitions) for topic in wanted]
    for name, indexes in pairs:
        parts = tuple(_partitions(context, nested(cls, "partitions"), name, indexes))
        if parts:
            yield make(cls, name=name, partitions=parts)


def _partitions(context: RequestContext, cls: Any, name: str, indexes: Any) -> Iterator[Entity]:
    for index in dict.fromkeys(indexes):
        try:
            partition = context.broker.replicas.find(name, index)
        except LogboomError:
            continue  # a partition that is not in a log dir is left out, as in Kafka
        yield make(
            cls,
            partition_index=index,
            partition_size=partition.log.size_bytes,
            offset_lag=_lacks(partition),
            is_future_key=False,
        )


def _lacks(partition: Partition) -> int:
    """What this copy lacks of the committed records that its leader told it of."""
    role = partition.role
    return max(role.follower.freshness.leaders_mark - partition.log_end_offset, 0) if role.follows else 0


HANDLER = Handler(api_key=_API_KEY, min_version=1, max_version=5, handle=handle)
