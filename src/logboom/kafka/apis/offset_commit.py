"""OffsetCommit: answered when the offsets are committed in `__consumer_offsets`. By stream id from version 10 on."""

from typing import Any, Final

from logboom.base.errors import LogboomError, UnknownStreamError
from logboom.groups import Commit, OffsetToCommit
from logboom.kafka.admin.lookup import find_stream
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import as_milliseconds, make, milliseconds, nested, response_class

_API_KEY: Final = 8
_FIRST_WITH_MISSING_GROUP: Final = 9
_FIRST_BY_ID: Final = 10


async def handle(context: RequestContext, request: Any) -> Reply:
    """Refuse the offsets of partitions that do not exist, and commit all others together."""
    by_id = context.api_version >= _FIRST_BY_ID
    checked = [
        (topic, part, _check(context, topic, part, by_id)) for topic in request.topics for part in topic.partitions
    ]
    offsets = tuple(result for _, _, result in checked if isinstance(result, OffsetToCommit))
    retention_ms = as_milliseconds(request.retention_time) if hasattr(request, "retention_time") else -1
    commit = Commit(
        group_id=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        offsets=offsets,
        retention_ms=retention_ms,
        tells_missing_group=context.api_version >= _FIRST_WITH_MISSING_GROUP,
    )
    results = iter((await context.broker.groups.commit(commit)).results if offsets else ())
    errors = iter([result if isinstance(result, LogboomError) else next(results) for _, _, result in checked])
    cls = response_class(_API_KEY, context.api_version)
    topic_cls, part_cls = nested(cls, "topics"), nested(cls, "topics", "partitions")
    topics: list[Entity] = []
    for topic in request.topics:
        parts = tuple(
            make(part_cls, partition_index=part.partition_index, error_code=context.code_of(next(errors)))
            for part in topic.partitions
        )
        named = {"topic_id": topic.topic_id} if by_id else {"name": topic.name}
        topics.append(make(topic_cls, **named, partitions=parts))
    return make(cls, throttle_time=milliseconds(0), topics=tuple(topics))


def _check(context: RequestContext, topic: Any, part: Any, by_id: bool) -> OffsetToCommit | LogboomError:
    try:
        stream = find_stream(context.broker, topic.topic_id if by_id else topic.name)
    except LogboomError as error:
        return error
    if not 0 <= part.partition_index < stream.partitions:
        return UnknownStreamError(f"there is no partition {part.partition_index} of stream {stream.name!r}")
    return OffsetToCommit(
        stream=stream.name,
        partition=part.partition_index,
        offset=part.committed_offset,
        leader_epoch=getattr(part, "committed_leader_epoch", -1),
        metadata=part.committed_metadata or "",
    )


HANDLER = Handler(api_key=_API_KEY, min_version=2, max_version=10, handle=handle, changes=True)
