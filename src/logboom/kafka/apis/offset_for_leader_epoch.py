"""OffsetForLeaderEpoch (KIP-101, KIP-279, KIP-320): where an epoch ended, so that a reader detects a truncated log."""

from typing import Any, Final

from logboom.base.errors import LogboomError
from logboom.base.ids import Epoch
from logboom.kafka.admin.lookup import led_partition
from logboom.kafka.errors import REPLICAS_ELSEWHERE, ReplicaRequestError, error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 23
_WITH_REPLICA: Final = 3
_UNKNOWN: Final = -1


def handle(context: RequestContext, request: Any) -> Reply:
    """The latest epoch that is not above the requested one, and its end offset."""
    cls = response_class(_API_KEY, context.api_version)
    topic_cls, part_cls = nested(cls, "topics"), nested(cls, "topics", "partitions")
    replica = request.replica_id if context.api_version >= _WITH_REPLICA else _UNKNOWN
    topics = tuple(
        make(
            topic_cls,
            topic=topic.topic,
            partitions=tuple(_end(context, part_cls, topic.topic, part, replica) for part in topic.partitions),
        )
        for topic in request.topics
    )
    return make(cls, throttle_time=milliseconds(0), topics=topics)


def _end(context: RequestContext, part_cls: Any, topic: str, part: Any, replica: int) -> Entity:
    error = None
    epoch = end_offset = _UNKNOWN
    try:
        if replica >= 0:
            raise ReplicaRequestError(REPLICAS_ELSEWHERE)
        partition = led_partition(context.broker, topic, part.partition)
        partition.check_leader_epoch(part.current_leader_epoch)
        epoch, end_offset = partition.end_of_epoch(Epoch(part.leader_epoch))
    except LogboomError as refused:
        error = refused
    return make(
        part_cls, error_code=error_code(error), partition=part.partition, leader_epoch=epoch, end_offset=end_offset
    )


HANDLER = Handler(api_key=_API_KEY, min_version=2, max_version=4, handle=handle)
