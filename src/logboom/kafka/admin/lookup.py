"""Finding the stream or partition that a request names, by name or by id."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from logboom.base.errors import NotLeaderError, UnknownStreamError, UnknownStreamIdError
from logboom.base.ids import StreamId

if TYPE_CHECKING:
    from logboom.broker.broker import Broker
    from logboom.broker.partition.replica import Partition
    from logboom.metadata import Stream


def find_partition(broker: Broker, topic: str | UUID | None, index: int) -> Partition:
    """The partition of a stream by name, or by id where there is one. Raises LogboomError."""
    if isinstance(topic, str):
        return broker.replicas.find(topic, index)
    if topic is None:
        raise UnknownStreamIdError("the request names no stream id")
    return broker.replicas.find_by_id(StreamId(topic), index)


def led_partition(broker: Broker, topic: str, index: int) -> Partition:
    """A partition that this broker leads. Raises LogboomError."""
    partition = broker.replicas.find(topic, index)
    if not partition.leads:
        raise NotLeaderError(f"this broker does not lead {partition}")
    return partition


def find_stream(broker: Broker, topic: str | UUID | None) -> Stream:
    """A stream by name, or by id where there is one. Raises LogboomError."""
    if isinstance(topic, str):
        stream = broker.catalog.stream(topic)
        if stream is None:
            raise UnknownStreamError(f"there is no stream {topic!r}")
        return stream
    stream = None if topic is None else broker.catalog.stream_by_id(StreamId(topic))
    if stream is None:
        raise UnknownStreamIdError(f"no stream has the id {topic}")
    return stream
