"""DeleteRecords (KIP-107): raise the log start of partitions, at most to the high-water mark, which -1 stands for.

The new log start is on the disks of all in-sync replicas before the response leaves, or the request times out. Segments
that lie wholly below it are removed at once; the segment it lies in is removed once the rest of it may be too.
"""

import asyncio
from typing import Any, Final

from logboom.base.errors import LogboomError
from logboom.kafka.admin.lookup import led_partition
from logboom.kafka.errors import error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import as_milliseconds, make, milliseconds, nested, response_class
from logboom.metadata import check_client_may_write

_API_KEY: Final = 21
_NO_OFFSET: Final = -1


async def handle(context: RequestContext, request: Any) -> Reply:
    """Delete in each partition; each has its own result."""
    cls = response_class(_API_KEY, context.api_version)
    topics = []
    for topic in request.topics:
        timeout_s = as_milliseconds(request.timeout) / 1_000
        results = await asyncio.gather(*(_delete(context, topic.name, one, timeout_s) for one in topic.partitions))
        topics.append(make(nested(cls, "topics"), name=topic.name, partitions=tuple(results)))
    return make(cls, throttle_time=milliseconds(0), topics=tuple(topics))


async def _delete(context: RequestContext, name: str, wanted: Any, timeout_s: float) -> Entity:
    error, low_watermark = None, _NO_OFFSET
    try:
        partition = led_partition(context.broker, name, wanted.partition_index)
        check_client_may_write(partition.stream)
        low_watermark = await partition.deletion.delete_records(wanted.offset, timeout_s)
        context.broker.log.info("records deleted", partition=str(partition), log_start_offset=low_watermark)
    except LogboomError as refused:
        error = refused
    return make(
        nested(response_class(_API_KEY, context.api_version), "topics", "partitions"),
        partition_index=wanted.partition_index,
        low_watermark=low_watermark,
        error_code=error_code(error),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=2, handle=handle, changes=True)
