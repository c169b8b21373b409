"""DescribeTopicPartitions (KIP-966): streams with their eligible leader replicas, some partitions at a time.

The response names where to go on when there are more partitions than it may have, so a client reads a cluster of any
size in pieces. Streams come in the order of their names.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from logboom.base.errors import LogboomError, UnknownStreamError
from logboom.kafka.admin.operations import TOPIC_OPERATIONS
from logboom.kafka.errors import error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class
from logboom.metadata import Stream, check_name

_API_KEY: Final = 75
_PARTITIONS_MAX: Final = 2_000
"""Kafka's max.request.partition.size.limit."""


def handle(context: RequestContext, request: Any) -> Reply:
    """Describe the streams that are named, or all, from the cursor on."""
    cls = response_class(_API_KEY, context.api_version)
    names, first = _from_cursor(context, request)
    left = max(1, min(request.response_partition_limit, _PARTITIONS_MAX))
    topics: list[Entity] = []
    go_on: tuple[str, int] | None = None
    for name in names:
        if not left:
            go_on = name, 0
            break
        stream = context.broker.catalog.stream(name)
        indexes = range(0) if stream is None else range(stream.partitions)[first : first + left]
        topics.append(_topic(context, name, stream, indexes))
        if stream is not None and indexes and indexes.stop < stream.partitions:
            go_on = name, indexes.stop
            break
        left -= len(indexes)
        first = 0
    cursor = None if go_on is None else make(nested(cls, "next_cursor"), topic_name=go_on[0], partition_index=go_on[1])
    return make(cls, throttle_time=milliseconds(0), topics=tuple(topics), next_cursor=cursor)


def _from_cursor(context: RequestContext, request: Any) -> tuple[Sequence[str], int]:
    """The names that are left to describe, and the partition to begin with."""
    wanted = {topic.name for topic in request.topics} or context.broker.catalog.streams().keys()
    names, cursor = sorted(wanted), request.cursor
    if cursor is None:
        return names, 0
    names = [name for name in names if name >= cursor.topic_name]
    return names, max(0, cursor.partition_index) if names[:1] == [cursor.topic_name] else 0


def _topic(context: RequestContext, name: str, stream: Stream | None, indexes: range) -> Entity:
    cls = nested(response_class(_API_KEY, context.api_version), "topics")
    return make(
        cls,
        error_code=error_code(None if stream is not None else _why_not(name)),
        name=name,
        topic_id=None if stream is None else stream.id,
        is_internal=stream is not None and stream.internal,
        partitions=() if stream is None else tuple(_partitions(context, cls, stream, indexes)),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _why_not(name: str) -> LogboomError:
    try:
        check_name(name)
    except LogboomError as error:
        return error
    return UnknownStreamError(f"there is no stream {name!r}")


def _partitions(context: RequestContext, cls: Any, stream: Stream, indexes: range) -> Iterator[Entity]:
    part_cls = nested(cls, "partitions")
    for index in indexes:
        view = context.server.cluster.partition(stream, index)
        yield make(
            part_cls,
            error_code=error_code(view.error),
            partition_index=index,
            leader_id=view.leader,
            leader_epoch=view.assignment.leader_epoch,
            replica_nodes=view.assignment.replicas,
            isr_nodes=view.assignment.isr,
            eligible_leader_replicas=view.assignment.elr,
            last_known_elr=view.assignment.last_known,
            offline_replicas=view.offline,
        )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=0, handle=handle)
