"""From what a request calls a stream, its name or its id, to the broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from logboom.base.errors import UnknownStreamIdError
from logboom.base.ids import StreamId

if TYPE_CHECKING:
    from logboom.broker.broker import Broker
    from logboom.broker.partition import Partition


def find_partition(broker: Broker, topic: str | UUID | None, index: int) -> Partition:
    """The partition of a stream by name, or by id where there is one. Raises LogboomError."""
    if isinstance(topic, str):
        return broker.partition(topic, index)
    if topic is None:
        raise UnknownStreamIdError("the request names no stream id")
    return broker.partition_by_id(StreamId(topic), index)
