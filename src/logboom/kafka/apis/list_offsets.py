"""ListOffsets: earliest, latest, by time, and the record with the highest timestamp (KIP-734)."""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from logboom.base.errors import InvalidRequestError, LogboomError, OffsetNotAvailableError
from logboom.kafka.admin.lookup import led_partition
from logboom.kafka.errors import (
    LeaderNotAvailableError,
    UnsupportedVersionError,
    error_code,
)
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

if TYPE_CHECKING:
    from logboom.broker.partition.replica import Partition

_API_KEY: Final = 2
_UNKNOWN: Final = -1
_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING_UPLOAD: Final = -6
_SINCE_VERSION: Final = {
    _LATEST: 0,
    _EARLIEST: 0,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
_WITH_NOT_AVAILABLE: Final = 5
_PARALLEL: Final = 16
"""Lookups of one request that may wait for the disk at the same time."""


async def handle(context: RequestContext, request: Any) -> Reply:
    """Look up every partition."""
    cls = response_class(_API_KEY, context.api_version)
    topic_cls, part_cls = nested(cls, "topics"), nested(cls, "topics", "partitions")
    gate = asyncio.Semaphore(_PARALLEL)
    times = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)

    async def look_up(name: str, part: Any) -> Entity:
        if times[name, part.partition_index] > 1:
            return _answer(part_cls, part, InvalidRequestError("the request names a partition more than once"))
        async with gate:
            return await _look_up(context, part_cls, name, part)

    topics = [
        make(
            topic_cls,
            name=topic.name,
            partitions=tuple(await asyncio.gather(*(look_up(topic.name, part) for part in topic.partitions))),
        )
        for topic in request.topics
    ]
    return make(cls, throttle_time=milliseconds(0), topics=tuple(topics))


async def _look_up(context: RequestContext, part_cls: Any, name: str, part: Any) -> Entity:
    error: LogboomError | None = None
    offset = timestamp_ms = epoch = _UNKNOWN
    try:
        partition = led_partition(context.broker, name, part.partition_index)
        if context.api_version >= 4:
            partition.check_leader_epoch(part.current_leader_epoch)
        offset, timestamp_ms, epoch = await _find(partition, part.timestamp, context.api_version)
    except OffsetNotAvailableError as refused:
        # Clients from before version 5 know the other code alone, and ask again for both (KIP-207).
        error = refused if context.api_version >= _WITH_NOT_AVAILABLE else LeaderNotAvailableError(*refused.args)
    except LogboomError as refused:
        error = refused
    return _answer(part_cls, part, error, offset, timestamp_ms, epoch)


def _answer(
    part_cls: Any,
    part: Any,
    error: LogboomError | None,
    offset: int = _UNKNOWN,
    timestamp_ms: int = _UNKNOWN,
    epoch: int = _UNKNOWN,
) -> Entity:
    return make(
        part_cls,
        partition_index=part.partition_index,
        error_code=error_code(error),
        timestamp=timestamp_ms,
        offset=offset,
        leader_epoch=epoch,
    )


async def _find(partition: "Partition", wanted: int, version: int) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch), -1 each where there is no such record."""
    if wanted < 0 and version < _SINCE_VERSION.get(wanted, version + 1):
        raise UnsupportedVersionError(f"ListOffsets version {version} has no special timestamp {wanted}")
    if wanted == _LATEST:
        partition.role.leader.check_latest_known()
        return partition.high_watermark, _UNKNOWN, partition.leader_epoch
    if wanted in (_EARLIEST, _EARLIEST_LOCAL):
        return partition.log_start_offset, _UNKNOWN, partition.leader_epoch
    if wanted in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _UNKNOWN, _UNKNOWN, _UNKNOWN  # there is no tiered storage
    found = await (
        partition.reads.max_timestamp() if wanted == _MAX_TIMESTAMP else partition.reads.offset_for_time(wanted)
    )
    if found is None:
        partition.role.leader.check_latest_known()  # it may be one of those that this leader does not show yet
        return _UNKNOWN, _UNKNOWN, _UNKNOWN
    return found.offset, found.timestamp_ms, found.leader_epoch


HANDLER = Handler(api_key=_API_KEY, min_version=1, max_version=11, handle=handle)
