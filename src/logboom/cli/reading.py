"""Records of a stream as commands read them: from offsets of theirs, to the end or for ever.

Knows librdkafka's consumer; nothing of what is in a record.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from logboom.cli.client import Bounds, admin, bounds, check_answered, client_config, explain, find_stream
from logboom.cli.common import fail

Where = tuple[str, int]
"""A stream and the index of a partition."""
_POLL_S: Final = 0.5
_BATCH: Final = 1_000
_SILENT_MAX_S: Final = 20.0


def held_by(stream: str, partition: int | None, bootstrap: str) -> dict[Where, Bounds]:
    """What the partitions hold that are to be read."""
    client = admin(bootstrap)
    topic = find_stream(client, bootstrap, stream)
    if partition is not None and partition not in topic.partitions:
        fail(f"stream {stream!r} has no partition {partition}: it has 0 to {len(topic.partitions) - 1}")
    found = bounds(client, {stream: len(topic.partitions)})
    wanted = [(stream, index) for index in sorted(topic.partitions) if partition in (None, index)]
    check_answered(wanted, found)
    return {where: found[where] for where in wanted}


@contextlib.contextmanager
def consuming(bootstrap: str, stream: str, starts: Mapping[int, int]) -> Iterator[Consumer]:
    """A consumer of partitions from these offsets on."""
    config = {
        "group.id": "logboom-tail",  # the client wants one; nothing is committed under it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 200,
    }
    consumer = Consumer(client_config(bootstrap, **config))
    try:
        assign(consumer, stream, starts)
        yield consumer
    finally:
        consumer.close()


def assign(consumer: Consumer, stream: str, offsets: Mapping[int, int]) -> None:
    """Read from these offsets of partitions on, and nothing else."""
    consumer.assign([TopicPartition(stream, index, offset) for index, offset in offsets.items()])


def endless(consumer: Consumer) -> Iterator[Message]:
    """Records as they arrive."""
    while True:
        for message in _arrived(consumer):
            if _is_record(message):
                yield message


def up_to_the_end(consumer: Consumer, starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[Message]:
    """Records up to what was the end of each partition, in order of arrival."""
    unfinished = {index for index, start in starts.items() if start < ends[index]}
    silent_s = 0.0
    while unfinished:
        messages = _arrived(consumer)
        silent_s = 0.0 if messages else silent_s + _POLL_S
        if silent_s > _SILENT_MAX_S:
            fail(
                f"the broker has sent nothing for {_SILENT_MAX_S:.0f} s: is it running, and does its log report damage?"
            )
        for message in messages:
            index, at = message.partition(), message.offset()
            is_record = _is_record(message)
            if index is None or at is None or index not in unfinished:
                continue
            if is_record and at < ends[index]:
                yield message
            # librdkafka reports the end as an event; the offsets before it need not hold records.
            if at + is_record >= ends[index]:
                unfinished.discard(index)


def _arrived(consumer: Consumer) -> list[Message]:
    """The messages that are there, as soon as there is one: `consume` alone would wait for a full batch."""
    first = consumer.poll(_POLL_S)
    return [] if first is None else [first, *consumer.consume(_BATCH, timeout=0)]


def _is_record(message: Message) -> bool:
    """Whether it is a record, and not the note that a partition has ended. Ends the command on an error that stays."""
    error = message.error()
    if error is not None and not _passing(error):
        where = f"partition {message.partition()} of {message.topic()} at offset {message.offset()}"
        fail(f"cannot read {where}: {explain(error)}")
    return error is None


def _passing(error: KafkaError) -> bool:
    """The end of a partition, or an error that the client recovers from."""
    return error.name() in ("_PARTITION_EOF", "_TRANSPORT", "_ALL_BROKERS_DOWN") or error.retriable()


def headers_of(message: Message) -> list[tuple[str, bytes | str | None]]:
    """Its headers, in their order."""
    headers = message.headers() or []
    return list(headers.items()) if isinstance(headers, dict) else list(headers)
