"""Reads a bounded part of streams on the driver. Knows Kafka's consumer. Must not know what records mean."""

import time
from collections.abc import Generator, Iterator, Mapping
from typing import Final

from confluent_kafka import Consumer, Message, TopicPartition

from logboom.pipeline.edge.streams import LogUnreachableError

_POLL_S: Final = 0.2
_SILENT_MAX_S: Final = 30.0
Ranges = Mapping[tuple[str, int], tuple[int, int]]
"""(stream, partition) -> first offset and the offset after the last."""


def read_ranges(bootstrap: str, ranges: Ranges) -> Generator[Message, None, None]:
    """The records that these ranges still hold; LogUnreachableError if the log stops answering."""
    left = {place: end for place, (start, end) in ranges.items() if end > start}
    if not left:
        return
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "logboom-pipeline-reader",  # required by the client; nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(*place, ranges[place][0]) for place in left])
        yield from _until_ends(consumer, left)
    finally:
        consumer.close()


def _until_ends(consumer: Consumer, left: dict[tuple[str, int], int]) -> Iterator[Message]:
    heard = time.monotonic()
    while left:
        message = consumer.poll(_POLL_S)
        if message is None:
            if time.monotonic() - heard > _SILENT_MAX_S:
                raise LogUnreachableError(f"the log did not answer within {_SILENT_MAX_S:.0f} s")
            continue
        heard = time.monotonic()
        place = (str(message.topic()), int(message.partition() or 0))
        if message.error() is not None:
            left.pop(place, None)  # the end of the partition, which was truncated since it was looked up
            continue
        if place not in left:
            continue
        if int(message.offset() or 0) < left[place]:
            yield message
        if int(message.offset() or 0) + 1 >= left[place]:
            del left[place]
