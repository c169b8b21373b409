"""Fetch (KIP-74, KIP-320; incremental sessions, KIP-227; topic ids from version 13 on, KIP-516)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from logboom.base.errors import LogboomError, NotLeaderError, UnknownLeaderEpochError
from logboom.base.ids import NO_EPOCH
from logboom.kafka.admin.lookup import find_partition
from logboom.kafka.errors import error_code
from logboom.kafka.fetch.fetch import API_KEY, Fetch
from logboom.kafka.fetch.partition_fetch import PartitionFetch
from logboom.kafka.fetch.response import SESSION_ERRORS, encode_response, encode_session_error
from logboom.kafka.fetch.sessions import FINAL_EPOCH, NO_SESSION, Key, Position, SessionError, SessionRequest
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply

if TYPE_CHECKING:
    from uuid import UUID

_WITH_SESSIONS: Final = 7
_WITH_EPOCH: Final = 9
_WITH_ID: Final = 13
_WITH_REPLICA_STATE: Final = 15


def handle(context: RequestContext, request: Any) -> Reply:
    """Answer at once, or when there is enough to read or the client's time is over."""
    version, fetches = context.api_version, context.server.fetches
    if _is_from_replica(context, request):
        return _refuse_replica(context, _positions(version, request))
    sessions = version >= _WITH_SESSIONS
    session_request = SessionRequest(
        session_id=request.session_id if sessions else NO_SESSION,
        epoch=request.session_epoch if sessions else FINAL_EPOCH,
        by_id=version >= _WITH_ID,
        positions=_positions(version, request),
        forgotten=_forgotten(version, request) if sessions and request.forgotten_topics_data else (),
        owner=context.connection,
    )
    plan = fetches.sessions.begin(session_request, fetches.now_ms())
    if isinstance(plan, SessionError):
        code = SESSION_ERRORS[plan]
        fetches.metrics.api(API_KEY).errors[code.name] += 1
        return encode_session_error(version, code)
    return Fetch(fetches, context.client_id, version, request, plan).begin()


def _is_from_replica(context: RequestContext, request: Any) -> bool:
    replica = request.replica_state.replica_id if context.api_version >= _WITH_REPLICA_STATE else request.replica_id
    if replica < 0:
        return False
    context.server.log.warning(
        "replica fetch",
        "a broker tried to replicate from this one, which is a cluster of its own",
        replica=replica,
        client=context.client_host,
    )
    return True


def _refuse_replica(context: RequestContext, positions: list[Position]) -> Reply:
    """Answer each partition as Kafka answers a broker that is no replica of it; versions before 7 have no other field
    for an error."""
    fetches = [PartitionFetch(position, None, _not_a_replica(context, position)) for position in positions]
    errors = context.server.metrics.api(API_KEY).errors
    for fetch in fetches:
        errors[error_code(fetch.error).name] += 1
    return encode_response(context.api_version, NO_SESSION, fetches, committed_only=False)


def _not_a_replica(context: RequestContext, position: Position) -> LogboomError:
    try:
        partition = find_partition(context.broker, cast("str | UUID | None", position.topic), position.index)
        partition.check_leader_epoch(position.leader_epoch)
    except LogboomError as error:
        return error
    error_type = NotLeaderError if position.leader_epoch == NO_EPOCH else UnknownLeaderEpochError
    return error_type(f"{partition} has no other replica")


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


HANDLER = Handler(api_key=API_KEY, min_version=4, max_version=18, handle=handle, exclusive=True)
