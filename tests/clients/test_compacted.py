"""A client reads a compacted stream, of which most segments hold no record any more."""

import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.cli.running import ok
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

KEYS, RECORDS = 100, 30_000


def test_librdkafka_reads_over_segments_without_records(tmp_path: Path) -> None:
    """It takes ten replies without a record, one after the other, for a message that is too large."""
    with BrokerProcess(tmp_path / "data", "--set", "broker.cleaner.backoff_ms=20ms") as broker:
        settings = ("cleanup.policy=compact", "segment.bytes=65536", "min.cleanable.dirty.ratio=0.01")
        ok("streams", "create", "table", *[w for one in settings for w in ("--config", one)], bootstrap=broker.kafka)
        fill(broker.kafka)
        deadline = time.monotonic() + WAIT_S
        while (read := read_to_the_end(broker.kafka))[0] > RECORDS / 4:
            assert time.monotonic() < deadline, "nothing is compacted"
        assert read[1] == {b"%d" % key: b"%d" % (RECORDS - KEYS + key) for key in range(KEYS)}


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, "batch.size": 16_000})  # below segment.bytes
    for number in range(RECORDS):
        producer.produce("table", b"%d" % number, b"%d" % (number % KEYS))
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def read_to_the_end(bootstrap: str) -> tuple[int, dict[bytes, bytes]]:
    """How many records there are, and the latest value of each key."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    count, table = 0, dict[bytes, bytes]()
    try:
        consumer.assign([TopicPartition("table", 0, 0)])
        while (message := consumer.poll(WAIT_S)) is not None:
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            count += 1
            table[key] = value
            if message.offset() == RECORDS - 1:
                return count, table
    finally:
        consumer.close()
    raise AssertionError("the last record did not come")
