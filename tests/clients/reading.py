"""Reads whole streams, as the checks at the end of a test do."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from tests.support.waiting import WAIT_S


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None


def read(bootstrap: str, stream: str) -> list[Record]:
    """All records, one partition after the other."""
    records = list[Record]()
    with _consumer(bootstrap) as consumer:
        for partition in _partitions(consumer, stream):
            consumer.assign([partition])
            while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
                key, value = message.key(), message.value()
                assert not isinstance(key, str)
                assert not isinstance(value, str)
                records.append(Record(key, value))
            assert message is not None, "the end of the partition did not come"
    return records


def table(records: Iterable[Record]) -> dict[bytes, bytes]:
    """The latest value of each key that has no tombstone."""
    rows = dict[bytes, bytes]()
    for key, value in records:
        assert key is not None
        rows.pop(key, None)
        if value is not None:
            rows[key] = value
    return rows


def ends(bootstrap: str, *streams: str) -> int:
    """The sum of the end offsets of all their partitions; a stream that is not there yet has none."""
    with _consumer(bootstrap) as consumer:
        partitions = [partition for stream in streams for partition in _partitions(consumer, stream)]
        # The end of a partition that never had a record is negative.
        return sum(max(0, consumer.get_watermark_offsets(partition, timeout=WAIT_S)[1]) for partition in partitions)


def is_compacted(bootstrap: str, stream: str) -> bool:
    """Whether fewer records are there than were written."""
    return len(read(bootstrap, stream)) < ends(bootstrap, stream)


@contextmanager
def _consumer(bootstrap: str) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True})
    try:
        yield consumer
    finally:
        consumer.close()


def _partitions(consumer: Consumer, stream: str) -> list[TopicPartition]:
    """All of them, each at its start."""
    known = consumer.list_topics(timeout=WAIT_S).topics
    return [TopicPartition(stream, number, 0) for number in known[stream].partitions] if stream in known else []
