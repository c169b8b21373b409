"""ListPartitionReassignments (KIP-455): the partitions whose replicas are being moved, as this broker knows."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from logboom.kafka.errors import error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class
from logboom.metadata import Stream

_API_KEY: Final = 46


def handle(context: RequestContext, request: Any) -> Reply:
    """Those of the streams that are named, or all. Partitions that are not being moved, or do not exist, are left out,
    as in Kafka."""
    cls = response_class(_API_KEY, context.api_version)
    topics = [_topic(nested(cls, "topics"), stream, indexes) for stream, indexes in _wanted(context, request)]
    return make(
        cls,
        throttle_time=milliseconds(0),
        error_code=error_code(None),
        error_message=None,
        topics=tuple(topic for topic in topics if topic.partitions),
    )


def _wanted(context: RequestContext, request: Any) -> Iterator[tuple[Stream, Iterable[int]]]:
    streams = context.broker.catalog.streams()
    if request.topics is None:
        for stream in streams.values():
            yield stream, range(stream.partitions)
        return
    for topic in request.topics:
        if (named := streams.get(topic.name)) is not None:
            yield named, dict.fromkeys(topic.partition_indexes)


def _topic(cls: Any, stream: Stream, indexes: Iterable[int]) -> Entity:
    part_cls = nested(cls, "partitions")
    partitions = [
        make(
            part_cls,
            partition_index=index,
            replicas=one.replicas,
            adding_replicas=one.adding,
            removing_replicas=one.removing,
        )
        for index in indexes
        if 0 <= index < len(stream.assignments) and (one := stream.assignments[index]).reassigning
    ]
    return make(cls, name=stream.name, partitions=tuple(partitions))


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=0, handle=handle)
