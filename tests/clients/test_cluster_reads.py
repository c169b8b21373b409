"""Clients on a cluster of three brokers: consumers read in their own rack, and all go on when a broker dies."""

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cluster_processes import cluster_of
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

RECORDS = 300


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    with cluster_of(tmp_path) as running:
        yield running


def everywhere(brokers: list[BrokerProcess]) -> str:
    return ",".join(one.kafka for one in brokers)


def metric(broker: BrokerProcess, name: str) -> float:
    with urlopen(f"http://{broker.http}/metrics", timeout=WAIT_S) as answer:
        text: str = answer.read().decode()
    (value,) = (line.split()[-1] for line in text.splitlines() if line.startswith(f"{name} "))
    return float(value)


def fetched_bytes(broker: BrokerProcess) -> float:
    return metric(broker, "logboom_kafka_fetched_bytes_total")


def produced(bootstrap: str, stream: str, start: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(start, start + RECORDS):
        producer.produce(stream, str(number).zfill(1_000), partition=0)
    assert producer.flush(WAIT_S) == 0


def read(consumer: Consumer, count: int) -> list[int]:
    end_s = time.monotonic() + WAIT_S
    found: list[int] = []
    while len(found) < count:
        assert time.monotonic() < end_s, found[-1:]
        for message in consumer.consume(count - len(found), timeout=1.0):
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            found.append(int(value))
    return found


def test_a_consumer_reads_in_its_own_rack_and_goes_on_without_that_broker(brokers: list[BrokerProcess]) -> None:
    bootstrap = everywhere(brokers)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("near", 1, replica_assignment=[[1, 2, 3]])])["near"].result(WAIT_S)
    produced(bootstrap, "near", 0)
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "client.rack": "b", "reconnect.backoff.max.ms": 500})
    consumer.subscribe(["near"])
    try:
        assert read(consumer, RECORDS) == list(range(RECORDS))
        leader, near, other = map(fetched_bytes, brokers)
        assert near >= RECORDS * 1_000
        assert leader < RECORDS * 1_000
        assert other == 0
        brokers[1].kill9()
        produced(everywhere([brokers[0], brokers[2]]), "near", RECORDS)
        assert read(consumer, RECORDS) == list(range(RECORDS, 2 * RECORDS))
        assert fetched_bytes(brokers[0]) >= RECORDS * 1_000
        brokers[1].restart()
        until(lambda: _in_sync(admin) == {1, 2, 3})
    finally:
        consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize(("reads", "rack"), [("rack", "b"), ("preferred", "")])
def test_consumers_read_from_an_observer_and_cost_the_leader_nothing(tmp_path: Path, reads: str, rack: str) -> None:
    with cluster_of(tmp_path, racks=("a", "a"), observers=("b",)) as brokers:
        leader, follower, observer = brokers
        bootstrap = everywhere(brokers[:2])
        admin = AdminClient({"bootstrap.servers": bootstrap})
        config = {"logboom.observers": "1", "logboom.observer.reads": reads}
        topic = NewTopic("watched", 1, replica_assignment=[[1, 2]], config=config)
        admin.create_topics([topic])["watched"].result(WAIT_S)
        produced(bootstrap, "watched", 0)
        until(lambda: metric(observer, "logboom_replicated_bytes_in_total") >= RECORDS * 1_000)
        settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "client.rack": rack, "reconnect.backoff.max.ms": 500})
        consumer.subscribe(["watched"])
        try:
            assert read(consumer, RECORDS) == list(range(RECORDS))
            assert fetched_bytes(observer) >= RECORDS * 1_000
            assert fetched_bytes(leader) == fetched_bytes(follower) == 0
            assert metric(leader, "logboom_kafka_sent_to_observers_total") >= 1
            observer.kill9()
            produced(bootstrap, "watched", RECORDS)
            assert read(consumer, RECORDS) == list(range(RECORDS, 2 * RECORDS))
        finally:
            consumer.close()


def _in_sync(admin: AdminClient) -> set[int]:
    return set(admin.list_topics("near", timeout=WAIT_S).topics["near"].partitions[0].isrs)


def test_a_producer_goes_on_with_another_leader(brokers: list[BrokerProcess]) -> None:
    """Records that are acknowledged are there once, in their order, whoever leads."""
    bootstrap = everywhere(brokers)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"min.insync.replicas": "2"}
    topic = NewTopic("moving", 1, replica_assignment=[[1, 2, 3]], config=config)
    admin.create_topics([topic])["moving"].result(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
    for number in range(RECORDS):
        producer.produce("moving", str(number), partition=0)
        producer.poll(0)
        if number == RECORDS // 3:
            brokers[0].kill9()
        time.sleep(0.005)
    assert producer.flush(WAIT_S) == 0
    settings = {"bootstrap.servers": everywhere(brokers[1:]), "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition("moving", 0, 0)])
    try:
        assert read(consumer, RECORDS) == list(range(RECORDS))
    finally:
        consumer.close()
