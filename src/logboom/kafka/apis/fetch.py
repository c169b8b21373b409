"""Fetch (KIP-74, KIP-320; incremental sessions, KIP-227; topic ids from version 13 on, KIP-516)."""

from __future__ import annotations

from typing import Any, Final

from logboom.kafka.errors import REPLICAS_ELSEWHERE, ReplicaRequestError, error_code
from logboom.kafka.fetch.fetch import API_KEY, Fetch
from logboom.kafka.fetch.partition_fetch import PartitionFetch
from logboom.kafka.fetch.response import SESSION_ERRORS, encode_response, encode_session_error
from logboom.kafka.fetch.sessions import FINAL_EPOCH, NO_SESSION, Key, Position, SessionError, SessionRequest
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply

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
    return Fetch(fetches, context.client_id, context.connection, version, request, plan).begin()


def _is_from_replica(context: RequestContext, request: Any) -> bool:
    replica = request.replica_state.replica_id if context.api_version >= _WITH_REPLICA_STATE else request.replica_id
    if replica < 0:
        return False
    context.server.log.warning(
        "replica fetch",
        "a broker tried to replicate over the listener for clients",
        replica=replica,
        client=context.client_host,
    )
    return True


def _refuse_replica(context: RequestContext, positions: list[Position]) -> Reply:
    """Refuse each partition; versions before 7 have no other field for an error."""
    error = ReplicaRequestError(REPLICAS_ELSEWHERE)
    context.server.metrics.api(API_KEY).errors[error_code(error).name] += len(positions)
    fetches = [PartitionFetch(position, None, error) for position in positions]
    return encode_response(context.api_version, NO_SESSION, fetches, committed_only=False)


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
