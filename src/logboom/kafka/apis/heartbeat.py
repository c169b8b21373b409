"""Heartbeat: keep a member's session alive, and tell it when the group rebalances."""

from typing import Any, Final

from logboom.groups import Heartbeat
from logboom.kafka.errors import error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, response_class

_API_KEY: Final = 12


async def handle(context: RequestContext, request: Any) -> Reply:
    """Pass it to the group."""
    heartbeat = Heartbeat(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
    )
    reply = await context.broker.groups.heartbeat(heartbeat)
    cls = response_class(_API_KEY, context.api_version)
    return make(cls, throttle_time=milliseconds(0), error_code=error_code(reply.error))


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=4, handle=handle, waits_for_changes=False)
