"""JoinGroup: a member offers its protocols; the response leaves when the whole group has joined.

Version 0 is served because older librdkafka concludes from its absence that the broker has no groups.
"""

from typing import Any, Final

from logboom.groups import Join, Protocol
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import as_milliseconds, make, milliseconds, nested, response_class

_API_KEY: Final = 11
_FIRST_WITH_REQUIRED_MEMBER_ID: Final = 4
_FIRST_WITH_NULLABLE_PROTOCOL: Final = 7
_FIRST_WITH_SKIPPING: Final = 9


async def handle(context: RequestContext, request: Any) -> Reply:
    """Hand the join to the group and wait."""
    reply = await context.broker.groups.join(_join(context, request))
    cls = response_class(_API_KEY, context.api_version)
    one = nested(cls, "members")
    nullable = context.api_version >= _FIRST_WITH_NULLABLE_PROTOCOL
    return make(
        cls,
        throttle_time=milliseconds(0),
        error_code=context.code_of(reply.error),
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name if nullable else reply.protocol_name or "",
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=tuple(
            make(one, member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata)
            for member in reply.members
        ),
    )


def _join(context: RequestContext, request: Any) -> Join:
    session_timeout_ms = as_milliseconds(request.session_timeout)
    rebalance_timeout_ms = session_timeout_ms  # version 0 has no other
    if context.api_version >= 1 and as_milliseconds(request.rebalance_timeout) >= 0:
        rebalance_timeout_ms = as_milliseconds(request.rebalance_timeout)
    return Join(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=context.client_id,
        client_host=f"/{context.client_host}",  # as Java prints addresses, and as Kafka's tools show them
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        member_id_required=context.api_version >= _FIRST_WITH_REQUIRED_MEMBER_ID,
        can_skip_assignment=context.api_version >= _FIRST_WITH_SKIPPING,
        reason=getattr(request, "reason", None),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=9, handle=handle, waits_for_changes=False)
