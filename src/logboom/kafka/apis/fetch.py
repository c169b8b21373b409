"""Fetch (KIP-74, KIP-320; topic ids from version 13, KIP-516). No incremental sessions: every reply says session 0."""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset
from logboom.kafka.fetching import Fetch, Topics, Want, encode_refusal
from logboom.kafka.handler import Handler, Reply, RequestContext
from logboom.kafka.lookup import find_partition

_WITH_ERROR: Final = 7
_WITH_EPOCH: Final = 9
_WITH_ID: Final = 13
_WITH_REPLICA_STATE: Final = 15


def handle(context: RequestContext, request: Any) -> Reply:
    """Answer at once, or when there is enough to read or the client's time is over."""
    refusal = _refusal(context, request)
    if refusal is not None:
        context.shared.metrics.api(1).errors[refusal.name] += 1
        return encode_refusal(context.api_version, refusal)
    return Fetch(context, request, _topics(context, request)).begin()


def _refusal(context: RequestContext, request: Any) -> ErrorCode | None:
    version = context.api_version
    replica = request.replica_state.replica_id if version >= _WITH_REPLICA_STATE else request.replica_id
    if replica >= 0:
        context.shared.complaints.say(
            "replica fetch",
            "a broker tried to replicate from this one, which is a cluster of its own",
            replica=replica,
            client=context.client_host,
        )
        return ErrorCode.invalid_request
    if version >= _WITH_ERROR:
        if request.session_id != 0:
            return ErrorCode.fetch_session_id_not_found
        if request.session_epoch > 0:
            return ErrorCode.invalid_fetch_session_epoch
    return None


def _topics(context: RequestContext, request: Any) -> Topics:
    by_id = context.api_version >= _WITH_ID
    with_epoch = context.api_version >= _WITH_EPOCH
    topics = []
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        topics.append((name, [_want(context, name, part, with_epoch) for part in topic.partitions]))
    return topics


def _want(context: RequestContext, topic: Any, part: Any, with_epoch: bool) -> Want:
    partition = error = None
    try:
        partition = find_partition(context.broker, topic, part.partition)
    except LogboomError as refused:
        error = refused
    epoch = part.current_leader_epoch if with_epoch else -1
    return Want(part.partition, Offset(part.fetch_offset), part.partition_max_bytes, epoch, partition, error)


HANDLER = Handler(api_key=1, min_version=4, max_version=18, handle=handle, alone=True)
