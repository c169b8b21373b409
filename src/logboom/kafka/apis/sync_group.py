"""SyncGroup: the leader sends the assignments of all members; every member gets its own."""

from typing import Any, Final

from logboom.groups import Sync
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, response_class

_API_KEY: Final = 14


async def handle(context: RequestContext, request: Any) -> Reply:
    """Hand the sync to the group and wait."""
    sync = Sync(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        protocol_type=getattr(request, "protocol_type", None),
        protocol_name=getattr(request, "protocol_name", None),
        assignments=tuple((item.member_id, bytes(item.assignment)) for item in request.assignments),
    )
    reply = await context.broker.groups.sync(sync)
    return make(
        response_class(_API_KEY, context.api_version),
        throttle_time=milliseconds(0),
        error_code=context.code_of(reply.error),
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=5, handle=handle, waits_for_changes=False)
