"""confluent-kafka (librdkafka) against a broker: produce, consume or admin. Prints "ok ..." last, or dies."""

import sys
import threading
import time

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)


def produce(bootstrap: str, topic: str, first: int, count: int, codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 2,
            "message.timeout.ms": 120_000,
        }
    )
    failures: list[object] = []
    last: dict[int, int] = {}

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)
            return
        partition, offset = message.partition(), message.offset()  # type: ignore[attr-defined]
        if offset <= last.get(partition, -1):
            failures.append(f"offset went back to {offset} in partition {partition}")
        last[partition] = offset

    for n in range(first, first + count):
        while True:
            try:
                producer.produce(
                    topic, f"value-{n}", key=f"key-{n % 7}", headers={"n": str(n)}, on_delivery=on_delivery
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        if n % 500 == 0:
            print(f"sent {n}", flush=True)
    assert producer.flush(300) == 0, "messages are left in the queue"
    assert not failures, failures[:3]
    print(f"ok produced {count}")


def flood(bootstrap: str, topic: str) -> None:
    """Send 0, 1, 2, ... until standard input closes; print "acked N OFFSET" for each that the broker took."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": 300_000,
            "reconnect.backoff.max.ms": 200,
        }
    )
    over = threading.Event()

    def wait_for_close() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_close, daemon=True).start()

    def on_delivery(error: object, message: Message) -> None:
        value = message.value()
        assert value is not None
        if error is None:
            print("acked", value.decode(), message.offset(), flush=True)
        else:
            print("failed", value.decode(), error, flush=True)

    n = 0
    while not over.is_set():
        if len(producer) < 2_000:
            producer.produce(topic, str(n), partition=0, on_delivery=on_delivery)
            n += 1
        producer.poll(0.001)
    assert producer.flush(300) == 0
    print(f"ok sent {n}")


def consume(bootstrap: str, topic: str, group: str, count: int, assignor: str = "range") -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "cooperative-sticky" if assignor == "cooperative" else "range",
        }
    )
    consumer.subscribe([topic])
    last: dict[bytes, int] = {}
    seen = 0
    deadline = time.monotonic() + 300
    while seen < count:
        assert time.monotonic() < deadline, f"saw only {seen} of {count}"
        for message in consumer.consume(500, timeout=0.5):
            error = message.error()
            if error is not None:
                if error.retriable():
                    continue
                raise KafkaException(error)
            key, value, headers = message.key(), message.value(), message.headers()
            assert key is not None
            assert value is not None
            n = int(value.removeprefix(b"value-"))
            assert dict(headers or [])["n"] == str(n).encode()
            assert n > last.get(key, -1), f"{key!r}: {n} after {last[key]}"
            last[key] = n
            seen += 1
        if seen:
            consumer.commit(asynchronous=False)
    consumer.close()
    print(f"ok consumed {seen}")


def alter(client: AdminClient, topic: str) -> None:
    """Settings set and given back, one by one and all at once; records deleted."""

    def value(name: str) -> str:
        told = client.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)])
        entry: str = next(iter(told.values())).result(300)[name].value
        return entry

    def change(name: str, text: str, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, text, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result(300)

    change("retention.ms", "77000", AlterConfigOpType.SET)
    assert value("retention.ms") == "77000"
    change("retention.ms", "", AlterConfigOpType.DELETE)
    assert value("retention.ms") == "-1"
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"segment.ms": "5000"})
    client.alter_configs([resource])[resource].result(300)
    assert value("segment.ms") == "5000"
    producer = Producer({"bootstrap.servers": client_address(client)})
    for n in range(9):
        producer.produce(topic, str(n), partition=1)
    assert producer.flush(300) == 0
    for wanted, start in ((4, 4), (OFFSET_END, 9)):
        deleted = client.delete_records([TopicPartition(topic, 1, wanted)])
        assert next(iter(deleted.values())).result(300).low_watermark == start
    first = client.list_offsets({TopicPartition(topic, 1): OffsetSpec.earliest()})  # type: ignore[no-untyped-call]
    assert next(iter(first.values())).result(300).offset == 9


def broker_settings(client: AdminClient) -> None:
    """A broker's own setting, where it comes from, and what cannot change."""

    def told(name: str) -> ConfigEntry:
        asked = client.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")])
        entry: ConfigEntry = next(iter(asked.values())).result(300)[name]
        return entry

    def change(name: str, text: str, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, text, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result(300)

    change("fetch.max.bytes", "2000000", AlterConfigOpType.SET)
    entry = told("fetch.max.bytes")
    assert (entry.value, ConfigSource(entry.source)) == ("2000000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    sources = [ConfigSource(one.source).name for one in entry.synonyms.values()]
    assert sources[-1] == "DEFAULT_CONFIG", sources
    try:
        change("log.dirs", "/elsewhere", AlterConfigOpType.SET)
        said = "it was changed"
    except KafkaException as refused:
        said = refused.args[0].str()
    assert "restart" in said, said
    change("fetch.max.bytes", "", AlterConfigOpType.DELETE)
    assert told("fetch.max.bytes").is_default


def client_address(client: AdminClient) -> str:
    (broker,) = client.list_topics(timeout=300).brokers.values()
    return f"{broker.host}:{broker.port}"


def admin(bootstrap: str, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic].result(300)
    assert topic in client.list_topics(timeout=300).topics
    client.create_partitions([NewPartitions(topic, 4)])[topic].result(300)
    assert len(client.list_topics(topic, timeout=300).topics[topic].partitions) == 4
    config = client.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)])
    assert "segment.bytes" in next(iter(config.values())).result(300)
    alter(client, topic)
    broker_settings(client)
    cluster = client.describe_cluster(include_authorized_operations=True).result(300)
    assert len(cluster.nodes) == 1
    assert {AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.IDEMPOTENT_WRITE} <= {
        *cluster.authorized_operations
    }
    topics = client.describe_topics(TopicCollection([topic]), include_authorized_operations=True)
    operations = {*topics[topic].result(300).authorized_operations}
    assert {AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER_CONFIGS} <= operations
    ends = client.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})  # type: ignore[no-untyped-call]
    assert next(iter(ends.values())).result(300).offset == 0
    for group in client.list_consumer_groups().result(300).valid:
        client.describe_consumer_groups([group.group_id])[group.group_id].result(300)
    client.delete_topics([topic])[topic].result(300)
    assert topic not in client.list_topics(timeout=300).topics
    print(f"ok admin {topic}")


if __name__ == "__main__":
    verb, rest = sys.argv[1], sys.argv[2:]
    if verb == "produce":
        for part, codec in enumerate(rest[4].split(",")):
            produce(rest[0], rest[1], int(rest[2]) + part * int(rest[3]), int(rest[3]), codec)
    elif verb == "consume":
        consume(rest[0], rest[1], rest[2], int(rest[3]), *rest[4:])
    elif verb == "flood":
        flood(rest[0], rest[1])
    else:
        admin(rest[0], rest[1])
