"""DeleteGroups (KIP-229): delete empty groups with all their offsets."""

import asyncio
from typing import Any, Final

from logboom.groups import DeleteGroup, DeleteGroupReply
from logboom.kafka.errors import error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 42
_TOGETHER: Final = 256
"""Groups of one request that are deleted at the same time; then other requests have their turn."""


async def handle(context: RequestContext, request: Any) -> Reply:
    """Delete each group, once; each has its own result."""
    names = tuple(dict.fromkeys(request.groups_names))
    groups = context.broker.groups
    replies: list[DeleteGroupReply] = []
    for start in range(0, len(names), _TOGETHER):
        some = names[start : start + _TOGETHER]
        replies += await asyncio.gather(*(groups.delete_group(DeleteGroup(group_id=name)) for name in some))
    cls = response_class(_API_KEY, context.api_version)
    one = nested(cls, "results")
    results = tuple(
        make(one, group_id=name, error_code=error_code(reply.error)) for name, reply in zip(names, replies, strict=True)
    )
    return make(cls, throttle_time=milliseconds(0), results=results)


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=2, handle=handle, changes=True)
