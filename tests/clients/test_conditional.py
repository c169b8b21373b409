"""Conditional records sent by clients that know nothing of them but headers and an error code."""

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.drivers import DRIVERS
from tests.clients.test_round_trip import QUICK, built, run
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

WORKERS, EACH = 8, 25
TOPIC = "counters"
KEY = b"visits"
KILLS_AT = (50, 120)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", environment=QUICK) as process:
        config = {"cleanup.policy": "compact"}
        admin = AdminClient({"bootstrap.servers": process.kafka})
        admin.create_topics([NewTopic(TOPIC, 1, config=config)])[TOPIC].result(WAIT_S)
        yield process


class Counter:
    """One client of the counter: reads the partition to its end, and writes one more on top of what it read."""

    def __init__(self, bootstrap: str) -> None:
        quick = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200}
        self._producer = Producer({**quick, "enable.idempotence": True, "linger.ms": 0, "retry.backoff.max.ms": 100})
        # The question for the end would wait behind a fetch that waits for records, on the same connection.
        group = {"group.id": uuid.uuid4().hex, "enable.auto.commit": False, "fetch.wait.max.ms": 5}
        self._consumer = Consumer({**quick, **group})
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self._offset, self._value, self._read_to = -1, 0, 0
        self.refused = 0

    def read(self) -> None:
        """Read to what is the end now."""
        deadline = time.monotonic() + WAIT_S
        while True:
            message = self._consumer.poll(0.001)
            if message is None or message.error() is not None:
                if self._read_to >= self._end():
                    return
                assert time.monotonic() < deadline, "the end was not reached"
                continue
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert isinstance(value, bytes)
            self._offset, self._value, self._read_to = offset, int(value), offset + 1

    def _end(self) -> int:
        try:
            return self._consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=1, cached=False)[1]
        except Exception:  # noqa: BLE001 - the broker is away for a moment: as if there were more to read
            return self._read_to + 1

    def increment(self) -> None:
        """Until it is acked."""
        while True:
            self.read()
            outcome: list[KafkaError | None] = []
            headers: dict[str, str | bytes | None] = {
                "logboom-expected-offset": b"%d" % self._offset,
                "logboom-read-to": b"%d" % self._read_to,
            }

            def told(error: KafkaError | None, _: Message, outcome: list[KafkaError | None] = outcome) -> None:
                outcome.append(error)

            self._producer.produce(TOPIC, b"%d" % (self._value + 1), KEY, headers=headers, on_delivery=told)
            assert self._producer.flush(WAIT_S) == 0
            (error,) = outcome
            if error is None:
                return
            assert error.code() == KafkaError.INVALID_RECORD, error
            self.refused += 1

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.in_turn(2)
def test_concurrent_increments_are_all_counted_over_kills_of_the_broker(broker: BrokerProcess) -> None:
    """200 increments of one key by eight idempotent producers of librdkafka, the broker killed twice meanwhile."""
    counters = [Counter(broker.kafka) for _ in range(WORKERS)]
    acks = threading.Semaphore(0)
    wrong: list[BaseException] = []

    def work(counter: Counter) -> None:
        try:
            for _ in range(EACH):
                counter.increment()
                acks.release()
        except BaseException as error:
            wrong.append(error)
            raise

    threads = [threading.Thread(target=work, args=(counter,)) for counter in counters]
    for thread in threads:
        thread.start()
    for number in range(WORKERS * EACH):
        assert acks.acquire(timeout=2 * WAIT_S), wrong
        if number in KILLS_AT:
            broker.kill9()
            broker.restart()
    for thread in threads:
        thread.join(WAIT_S)
    assert not wrong
    counters[0].read()
    for counter in counters:
        counter.read()
        assert counter._value == WORKERS * EACH, "each ack has added one, and nothing else has"
        counter.close()
    assert sum(counter.refused for counter in counters) > 0, "nobody raced"


def test_the_java_client_tells_why_and_its_other_records_arrive(broker: BrokerProcess) -> None:
    """Many batches in flight, of which every third is refused: the rest is there once, in order."""
    java = next(driver for driver in DRIVERS if driver.name == "java")
    assert run(built(java), "conditions", broker.kafka, TOPIC).startswith("ok")
