"""DescribeQuorum (KIP-595, KIP-836, KIP-853): the group of brokers that agrees on metadata, as Kafka's tools show it.

It is described as the one partition of Kafka's `__cluster_metadata`. Only its leader knows how far the others are, so a
broker asks the leader; if that does not answer, the broker reports the little that it knows itself, and where it knows
no leader LEADER_NOT_AVAILABLE, upon which clients ask again.
"""

from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from typing import Any, Final
from uuid import UUID

from logboom.base.errors import LogboomError, UnknownStreamError
from logboom.broker.quorum import QuorumMember, QuorumView
from logboom.kafka.errors import LeaderNotAvailableError, error_code, error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, nested, response_class

_API_KEY: Final = 55
_TOPIC: Final = "__cluster_metadata"
_PARTITION: Final = 0
_LISTENER: Final = "PEER"
"""Brokers speak of metadata over the listener for brokers."""
_UUID_CHARS: Final = 22


async def handle(context: RequestContext, request: Any) -> Reply:
    """Describe the partition where it is asked for; there is no other."""
    cls = response_class(_API_KEY, context.api_version)
    view = await context.broker.cluster.describe_quorum()
    topic_cls = nested(cls, "topics")
    topics = tuple(
        make(
            topic_cls,
            topic_name=topic.topic_name,
            partitions=tuple(
                _partition(nested(topic_cls, "partitions"), topic.topic_name, part.partition_index, view)
                for part in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return make(cls, error_code=error_code(None), error_message=None, topics=topics, nodes=_nodes(context, cls, view))


def _partition(cls: Any, topic: str, index: int, view: QuorumView) -> Entity:
    if (topic, index) != (_TOPIC, _PARTITION):
        return _failed(cls, index, UnknownStreamError(f"only {_TOPIC}-{_PARTITION} can be described as a quorum"))
    if view.leader not in {one.broker_id for one in view.voters}:
        # Clients try that again, as Kafka has them do; its tool fails on a leader that is no voter.
        return _failed(cls, index, LeaderNotAvailableError("no controller is known at the moment"))
    member_cls = nested(cls, "current_voters")
    return make(
        cls,
        partition_index=index,
        error_code=error_code(None),
        error_message=None,
        leader_id=view.leader,
        leader_epoch=view.leader_epoch,
        high_watermark=view.high_watermark,
        current_voters=tuple(_member(member_cls, one) for one in view.voters),
        observers=tuple(_member(member_cls, one) for one in view.observers),
    )


def _failed(cls: Any, index: int, error: LogboomError) -> Entity:
    return make(
        cls,
        partition_index=index,
        error_code=error_code(error),
        error_message=error_message(error),
        leader_id=-1,
        leader_epoch=-1,
        high_watermark=-1,
        current_voters=(),
        observers=(),
    )


def _member(cls: Any, member: QuorumMember) -> Entity:
    return make(
        cls,
        replica_id=member.broker_id,
        replica_directory_id=_directory(member.directory_id),
        log_end_offset=member.log_end,
        last_fetch_timestamp=member.last_fetch_ms,
        last_caught_up_timestamp=member.last_caught_up_ms,
    )


def _directory(directory_id: str | None) -> UUID | None:
    """The id as Kafka writes ids: 22 characters of base64. None for one that a person chose."""
    if directory_id is None or len(directory_id) != _UUID_CHARS:
        return None
    try:
        return UUID(bytes=urlsafe_b64decode(directory_id + "=="))
    except (Base64Error, ValueError):
        return None


def _nodes(context: RequestContext, cls: Any, view: QuorumView) -> tuple[Entity, ...] | None:
    """Where the voters listen for other brokers (from version 2 on)."""
    if context.api_version < 2:
        return None
    node_cls = nested(cls, "nodes")
    listener_cls = nested(node_cls, "listeners")
    brokers = context.broker.catalog.image.brokers
    nodes = []
    for voter in view.voters:
        registered = brokers.get(voter.broker_id)
        address = None if registered is None else registered.listeners.get("peer")
        listeners = () if address is None else (make(listener_cls, name=_LISTENER, host=address[0], port=address[1]),)
        nodes.append(make(node_cls, node_id=voter.broker_id, listeners=listeners))
    return tuple(nodes)


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=2, handle=handle)
