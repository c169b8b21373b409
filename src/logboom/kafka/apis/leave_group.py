"""LeaveGroup: one member leaves or, from version 3 on, several, by member id or by instance id (KIP-345)."""

from typing import Any, Final

from logboom.groups import Leave, Leaver
from logboom.kafka.errors import error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 13
_FIRST_BATCHED: Final = 3


async def handle(context: RequestContext, request: Any) -> Reply:
    """Before version 3 the error of the only member is the error of the response."""
    batched = context.api_version >= _FIRST_BATCHED
    leavers = (
        tuple(Leaver(m.member_id, m.group_instance_id, getattr(m, "reason", None)) for m in request.members)
        if batched
        else (Leaver(request.member_id),)
    )
    reply = await context.broker.groups.leave(Leave(group_id=request.group_id, leavers=leavers))
    cls = response_class(_API_KEY, context.api_version)
    if not batched:
        error = reply.error or next(iter(reply.results), None)
        return make(cls, throttle_time=milliseconds(0), error_code=error_code(error))
    one = nested(cls, "members")
    members = tuple(
        make(one, member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=error_code(error))
        for leaver, error in zip(
            leavers, reply.results, strict=False
        )  # there are no results where the request failed as a whole
    )
    return make(cls, throttle_time=milliseconds(0), error_code=error_code(reply.error), members=members)


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=5, handle=handle, waits_for_changes=False)
