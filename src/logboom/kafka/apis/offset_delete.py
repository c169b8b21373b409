"""OffsetDelete (KIP-496): delete the offsets of streams that the group no longer reads."""

from typing import Any, Final

from logboom.base.errors import LogboomError
from logboom.groups import DeleteOffsets
from logboom.kafka.admin.lookup import find_stream
from logboom.kafka.errors import error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 47


async def handle(context: RequestContext, request: Any) -> Reply:
    """Delete what exists; each partition has its own result."""
    asked = [(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions]
    unknown = {topic.name: error for topic in request.topics if (error := _unknown(context, topic.name))}
    partitions = tuple(place for place in asked if place[0] not in unknown)
    reply = await context.broker.groups.delete_offsets(DeleteOffsets(group_id=request.group_id, partitions=partitions))
    cls = response_class(_API_KEY, context.api_version)
    if reply.error is not None:
        return make(cls, error_code=error_code(reply.error), throttle_time=milliseconds(0), topics=())
    results = dict(zip(partitions, reply.results, strict=True))
    topic_cls, part_cls = nested(cls, "topics"), nested(cls, "topics", "partitions")
    topics = tuple(
        make(
            topic_cls,
            name=topic.name,
            partitions=tuple(
                make(
                    part_cls,
                    partition_index=part.partition_index,
                    error_code=error_code(unknown.get(topic.name) or results.get((topic.name, part.partition_index))),
                )
                for part in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return make(cls, error_code=error_code(None), throttle_time=milliseconds(0), topics=topics)


def _unknown(context: RequestContext, name: str) -> LogboomError | None:
    try:
        find_stream(context.broker, name)
    except LogboomError as error:
        return error
    return None


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=0, handle=handle, changes=True)
