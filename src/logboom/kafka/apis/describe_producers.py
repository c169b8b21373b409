"""DescribeProducers (KIP-664): the idempotent producers that a partition remembers, told by its leader."""

import asyncio
from typing import Any, Final

from logboom.base.errors import LogboomError, PolicyViolationError
from logboom.base.ids import ProducerId
from logboom.kafka.admin.lookup import led_partition
from logboom.kafka.errors import error_code, error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class
from logboom.storage import ProducerTable

_API_KEY: Final = 61
_PRODUCERS_MAX: Final = 10_000
"""In one response, which is encoded in one go: all that a partition may remember (`LogConfig.max_producers`) would keep
the event loop for a good part of a lease."""
_PER_TURN: Final = 1_000
"""Producers and partitions that are looked at before others have their turn of the event loop."""
_NONE: Final = -1
"""Without transactions: no coordinator's epoch, and no offset at which one began."""


class _Room:
    """How many producers the response may still have, and when others have their turn."""

    def __init__(self) -> None:
        self._left = _PRODUCERS_MAX
        self._until_turn = _PER_TURN

    def take(self, table: ProducerTable) -> None:
        """Raises PolicyViolationError where its producers are too many."""
        if len(table) > self._left:
            raise PolicyViolationError(
                f"a response tells of {_PRODUCERS_MAX:,} producers at most, and this partition has {len(table):,}: "
                "ask for fewer partitions"
            )
        self._left -= len(table)

    async def looked_at(self, count: int) -> None:
        self._until_turn -= count
        if self._until_turn <= 0:
            self._until_turn = _PER_TURN
            await asyncio.sleep(0)


async def handle(context: RequestContext, request: Any) -> Reply:
    """The producers of each partition, or why they cannot be told."""
    cls = response_class(_API_KEY, context.api_version)
    room, topics = _Room(), []
    for topic in request.topics:
        partitions = [
            await _partition(context, nested(cls, "topics", "partitions"), topic.name, index, room)
            for index in topic.partition_indexes
        ]
        topics.append(make(nested(cls, "topics"), name=topic.name, partitions=tuple(partitions)))
    return make(cls, throttle_time=milliseconds(0), topics=tuple(topics))


async def _partition(context: RequestContext, cls: Any, name: str, index: int, room: _Room) -> Entity:
    producers: list[Entity] = []
    error = None
    try:
        table = led_partition(context.broker, name, index).log.producers
        room.take(table)
        producer_cls = nested(cls, "active_producers")
        for producer, state in table:
            producers.append(
                make(
                    producer_cls,
                    producer_id=ProducerId(producer),
                    producer_epoch=state.epoch,
                    last_sequence=state.batches[-1].last_sequence if state.batches else _NONE,
                    last_timestamp=state.seen_ms,
                    coordinator_epoch=_NONE,
                    current_txn_start_offset=_NONE,
                )
            )
            await room.looked_at(1)
    except LogboomError as refused:
        error = refused
    await room.looked_at(1)
    return make(
        cls,
        partition_index=index,
        error_code=error_code(error),
        error_message=error_message(error),
        active_producers=tuple(producers),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=0, handle=handle)
