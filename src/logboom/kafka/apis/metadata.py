"""Metadata: the brokers, and the streams with their partitions; asking for an unknown stream may create it.

A stream that a request names several times is described once, as in Kafka: otherwise a short request could ask for a
response of gigabytes.

A stream that is created on the way is described with its leader. Kafka answers LEADER_NOT_AVAILABLE or, in newer
versions, UNKNOWN_TOPIC_OR_PARTITION first, because another node creates the topic meanwhile; its clients then wait for
their retry backoff and ask again. Here the partitions lead before the response is written. No client depends on the
error: each gets the plain answer from Kafka too, when another client has created the topic a moment before.

A request that names a stream whose leader has gone from here just now (`broker.suspected_brokers`) waits for the next
leader, up to `LEADER_WAIT_S`. Told at once that there is none, librdkafka 2.16 asks again a second later, unless a
request of its own failed with the leader, and Java's clients after a backoff that doubles up to a second: either stands
still for up to a second more than the cluster. What else was asked on that connection is worked on meanwhile, but
answered after this. Requests for all streams do not wait: they come from tools. Thousands may wait for one leader, so
they are answered over several turns of the loop (`handlers.paced_work`).
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from logboom.base.errors import (
    LogboomError,
    NotControllerError,
    OutcomeUnknownError,
    StreamExistsError,
    UnknownStreamError,
    UnknownStreamIdError,
)
from logboom.base.ids import StreamId
from logboom.kafka.admin.metadata_cache import METADATA
from logboom.kafka.admin.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, authorized_operations
from logboom.kafka.errors import LeaderNotAvailableError, error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.controller_wait import briefly
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.encoded import EncodedResponse
from logboom.kafka.wire.encoding import count
from logboom.kafka.wire.error_counts import count_errors
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class
from logboom.kafka.wire.writing import encode
from logboom.metadata import Stream, check_name

_API_KEY: Final = METADATA
_WITH_THROTTLE: Final = 3
_WITH_OPERATIONS: Final = 8
LEADER_WAIT_S: Final = 0.5
"""About half of the time from the death of a leader to the next one, with the lease as it ships: acks after such a
request on its connection are late by no more than this."""
_LAST_WITH_CLUSTER_OPERATIONS: Final = 10
"""Later versions leave those of the cluster to DescribeCluster (KIP-700)."""


def handle(context: RequestContext, request: Any) -> Reply:
    """Describe what is there at once; go on in a task only where a stream has to be created."""
    wanted = _wanted(context, request)
    if wanted is None:
        count, topics = context.server.metadata_cache.all(
            context.api_version, operations=_topic_operations(context, request)
        )
        return _response(context, request, count, topics)
    may_create = context.broker.config.auto_create_streams and (
        context.api_version < 4 or request.allow_auto_topic_creation
    )
    missing = [name for name, _ in wanted if name is not None and context.broker.catalog.stream(name) is None]
    if missing and may_create:
        return _create_and_describe(context, request, wanted, missing)
    if _leader_is_lost(context, wanted):
        return _wait_and_describe(context, request, wanted)
    return _describe(context, request, wanted)


_Wanted = list[tuple[str | None, StreamId | None]]


def _describe(context: RequestContext, request: Any, wanted: _Wanted) -> EncodedResponse:
    return _response(
        context, request, len(wanted), b"".join(_find(context, request, name, id_) for name, id_ in wanted)
    )


def _leader_is_lost(context: RequestContext, wanted: _Wanted) -> bool:
    cluster = context.server.cluster
    if not cluster.lost:
        return False
    streams = (_stream(context, name, id_) for name, id_ in wanted)
    return any(one is not None and cluster.leader_is_lost(one) for one in streams)


async def _wait_and_describe(context: RequestContext, request: Any, wanted: _Wanted) -> EncodedResponse:
    # What is known is told when the time is over, and when this broker stops.
    try:
        async with asyncio.timeout(LEADER_WAIT_S):
            while _leader_is_lost(context, wanted):
                await context.broker.cluster.state.changed()
                await context.server.leader_waits.next()
    except (TimeoutError, LogboomError):
        await context.server.leader_waits.next()
    return _describe(context, request, wanted)


def _stream(context: RequestContext, name: str | None, id_: StreamId | None) -> Stream | None:
    catalog = context.broker.catalog
    if name is not None:
        return catalog.stream(name)
    return None if id_ is None else catalog.stream_by_id(id_)


def _wanted(context: RequestContext, request: Any) -> _Wanted | None:
    """Names or ids; None for all streams, which version 0 asks for with an empty list and later ones with null."""
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return None
    if context.api_version < 10:
        return [(name, None) for name in dict.fromkeys(topic.name for topic in request.topics)]
    # An id counts only without a name, as in Kafka: clients up to version 11 may send zeros beside the name.
    wanted = (
        (topic.name, None) if topic.name is not None else (None, StreamId(topic.topic_id) if topic.topic_id else None)
        for topic in request.topics
    )
    return list(dict.fromkeys(wanted))


def _topic_operations(context: RequestContext, request: Any) -> bool:
    return context.api_version >= _WITH_OPERATIONS and request.include_topic_authorized_operations


async def _create_and_describe(
    context: RequestContext, request: Any, wanted: _Wanted, missing: Iterable[str]
) -> EncodedResponse:
    errors: dict[str, LogboomError] = {}
    left = list(dict.fromkeys(missing))
    try:
        await briefly(_create(context, left, errors))
    except OutcomeUnknownError as error:
        errors |= {name: LeaderNotAvailableError(str(error)) for name in left}
    described = [
        _refuse(context, request, name, None, errors[name]) if name in errors else _find(context, request, name, id_)
        for name, id_ in wanted
    ]
    return _response(context, request, len(described), b"".join(described))


async def _create(context: RequestContext, left: list[str], errors: dict[str, LogboomError]) -> None:
    """Create streams one after the other; in `left` stay those that are not done yet."""
    while left:
        try:
            await context.broker.catalog.create_stream(left[0])
        except StreamExistsError:
            pass  # another client's request created it meanwhile
        except (NotControllerError, OutcomeUnknownError) as error:
            # Clients ask again for a stream without a leader; not all do for errors that Metadata gives nowhere else.
            errors[left[0]] = LeaderNotAvailableError(str(error))
        except LogboomError as error:
            errors[left[0]] = error
        del left[0]


def _find(context: RequestContext, request: Any, name: str | None, id_: StreamId | None) -> bytes | bytearray:
    cache, operations = context.server.metadata_cache, _topic_operations(context, request)
    stream = _stream(context, name, id_)
    if stream is not None:
        return cache.stream(stream, context.api_version, operations=operations)
    if name is None:
        return _refuse(context, request, None, id_, UnknownStreamIdError("no stream has this id"))
    try:
        check_name(name)
    except LogboomError as error:
        return _refuse(context, request, name, None, error)
    return _refuse(context, request, name, None, UnknownStreamError("no stream has this name"))


def _refuse(
    context: RequestContext, request: Any, name: str | None, id_: StreamId | None, error: LogboomError
) -> bytearray:
    # Kafka reports the operations of a name whether there is such a topic or not, and none of an unknown id.
    operations = name is not None and _topic_operations(context, request)
    if name is None and context.api_version < 12:
        name = ""  # null came with version 12
    topic = make(
        nested(response_class(_API_KEY, context.api_version), "topics"),
        error_code=context.code_of(error),
        name=name,
        topic_id=id_,
        is_internal=False,
        partitions=(),
        topic_authorized_operations=authorized_operations(TOPIC_OPERATIONS, requested=operations),
    )
    count_errors(topic, context.server.metrics.api(_API_KEY).errors)
    return encode(topic)


def _response(context: RequestContext, request: Any, topics: int, data: bytes) -> EncodedResponse:
    """The response around the encoded topics. It is new each time, because a throttle time is written into it."""
    cls, version = response_class(_API_KEY, context.api_version), context.api_version
    with_cluster = _WITH_OPERATIONS <= version <= _LAST_WITH_CLUSTER_OPERATIONS
    cluster_requested = with_cluster and request.include_cluster_authorized_operations
    cluster, broker_cls = context.server.cluster, nested(cls, "brokers")
    without_topics = encode(
        make(
            cls,
            throttle_time=milliseconds(0),
            brokers=tuple(
                make(broker_cls, node_id=one.id, host=one.host, port=one.port, rack=one.rack) for one in cluster.named()
            ),
            cluster_id=context.broker.identity.cluster_id,
            controller_id=cluster.controller_for_clients(),
            topics=(),
            cluster_authorized_operations=authorized_operations(CLUSTER_OPERATIONS, requested=cluster_requested),
            error_code=error_code(None),
        )
    )
    flexible = cls.__flexible__
    # Behind the topics come the authorized operations (versions 8 to 10), the error code (from 13 on), the tags.
    behind = (4 if with_cluster else 0) + (2 if version >= 13 else 0) + (1 if flexible else 0)
    end = len(without_topics) - behind
    before = without_topics[: end - len(count(0, flexible=flexible))] + count(topics, flexible=flexible)
    return EncodedResponse((before, data, without_topics[end:]), throttle_at=0 if version >= _WITH_THROTTLE else -1)


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=13, handle=handle)
