"""Fetch (KIP-74, KIP-320; incremental sessions, KIP-227; topic ids from version 13, KIP-516)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from logboom.base.errors import LogboomError, NotLeaderError, UnknownLeaderEpochError
from logboom.base.ids import NO_EPOCH
from logboom.kafka.admin.lookup import find_partition
from logboom.kafka.errors import error_code
from logboom.kafka.fetch.fetch import SESSION_ERRORS, Fetch, Want, encode_refusal, encode_response
from logboom.kafka.fetch.sessions import FINAL_EPOCH, NO_SESSION, FetchAsked, Key, Position, Refusal
from logboom.kafka.handlers.handler import Handler, Reply, RequestContext

if TYPE_CHECKING:
    from uuid import UUID

    from kio.schema.errors import ErrorCode

_WITH_SESSIONS: Final = 7
_WITH_EPOCH: Final = 9
_WITH_ID: Final = 13
_WITH_REPLICA_STATE: Final = 15


def handle(context: RequestContext, request: Any) -> Reply:
    """Answer at once, or when there is enough to read or the client's time is over."""
    version = context.api_version
    if _claims_a_replica(context, request):
        return _refuse_replica(context, _positions(version, request))
    sessions = version >= _WITH_SESSIONS
    asked = FetchAsked(
        session_id=request.session_id if sessions else NO_SESSION,
        epoch=request.session_epoch if sessions else FINAL_EPOCH,
        by_id=version >= _WITH_ID,
        positions=_positions(version, request),
        forgotten=_forgotten(version, request) if sessions and request.forgotten_topics_data else (),
        owner=context.connection,
    )
    plan = context.shared.fetch_sessions.begin(asked, context.now_ms())
    if isinstance(plan, Refusal):
        return _refuse(context, SESSION_ERRORS[plan])
    return Fetch(context, request, plan).begin()


def _refuse(context: RequestContext, refusal: ErrorCode) -> Reply:
    context.shared.metrics.api(1).errors[refusal.name] += 1
    return encode_refusal(context.api_version, refusal)


def _claims_a_replica(context: RequestContext, request: Any) -> bool:
    replica = request.replica_state.replica_id if context.api_version >= _WITH_REPLICA_STATE else request.replica_id
    if replica < 0:
        return False
    context.shared.complaints.say(
        "replica fetch",
        "a broker tried to replicate from this one, which is a cluster of its own",
        replica=replica,
        client=context.client_host,
    )
    return True


def _refuse_replica(context: RequestContext, positions: list[Position]) -> Reply:
    """Each partition is answered as Kafka answers a broker that is no replica of it; in every version that is seen."""
    wants = [Want(position, None, _no_replica(context, position)) for position in positions]
    errors = context.shared.metrics.api(1).errors
    for want in wants:
        errors[error_code(want.error).name] += 1
    return encode_response(context.api_version, NO_SESSION, wants, committed_only=False)


def _no_replica(context: RequestContext, position: Position) -> LogboomError:
    try:
        partition = find_partition(context.broker, cast("str | UUID | None", position.topic), position.index)
        partition.check_leader_epoch(position.leader_epoch)
    except LogboomError as error:
        return error
    refusal = NotLeaderError if position.leader_epoch == NO_EPOCH else UnknownLeaderEpochError
    return refusal(f"{partition} has no other replica")


def _positions(version: int, request: Any) -> list[Position]:
    by_id, with_epoch = version >= _WITH_ID, version >= _WITH_EPOCH
    return [
        Position(
            topic.topic_id if by_id else topic.topic,
            part.partition,
            part.fetch_offset,
            part.partition_max_bytes,
            part.current_leader_epoch if with_epoch else -1,
        )
        for topic in request.topics
        for part in topic.partitions
    ]


def _forgotten(version: int, request: Any) -> list[Key]:
    by_id = version >= _WITH_ID
    return [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


HANDLER = Handler(api_key=1, min_version=4, max_version=18, handle=handle, alone=True)
