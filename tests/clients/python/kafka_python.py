"""kafka-python against a broker: produce, consume or admin. Prints "ok ..." last, or dies."""

import sys
import time
from typing import Any

from kafka.admin import ConfigResource, NewTopic

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition


def produce(bootstrap: str, topic: str, first: int, count: int, codec: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks="all",
        enable_idempotence=True,
        retries=1_000,
        linger_ms=2,
        max_in_flight_requests_per_connection=1,
        request_timeout_ms=10_000,
        delivery_timeout_ms=120_000,
    )
    sent = []
    for n in range(first, first + count):
        sent.append(
            producer.send(topic, f"value-{n}".encode(), key=f"key-{n % 7}".encode(), headers=[("n", str(n).encode())])
        )
        if n % 500 == 0:
            print(f"sent {n}", flush=True)
    producer.flush(300)
    for future in sent:
        future.get(timeout=300)
    producer.close()
    print(f"ok produced {count}")


def consume(bootstrap: str, topic: str, group: str, count: int, assignor: str = "range") -> None:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    last: dict[bytes, int] = {}
    seen = 0
    deadline = time.monotonic() + 300
    while seen < count:
        assert time.monotonic() < deadline, f"saw only {seen} of {count}"
        for messages in consumer.poll(timeout_ms=500).values():
            for message in messages:
                n = int(message.value.removeprefix(b"value-"))
                assert dict(message.headers)["n"] == str(n).encode()
                assert n > last.get(message.key, -1), f"{message.key!r}: {n} after {last[message.key]}"
                last[message.key] = n
                seen += 1
        consumer.commit()
    consumer.close()
    print(f"ok consumed {seen}")


def alter(client: KafkaAdminClient, bootstrap: str, topic: str) -> None:
    """Settings set and given back, records deleted."""

    def modified() -> dict[str, str]:
        told = client.describe_configs([ConfigResource("TOPIC", topic)])
        entries = told["topic"][topic]
        return {name: entry["value"] for name, entry in entries.items()}

    client.alter_configs([ConfigResource("TOPIC", topic, {"retention.ms": "77000"})])
    assert modified() == {"retention.ms": "77000"}
    client.alter_configs([ConfigResource("TOPIC", topic, {"retention.ms": ("DELETE", None)})])
    assert modified() == {}
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for n in range(9):
        producer.send(topic, str(n).encode(), partition=1)
    producer.close()
    deleted = client.delete_records({TopicPartition(topic, 1): 4})
    assert deleted[TopicPartition(topic, 1)]["low_watermark"] == 4, deleted


def broker_settings(client: KafkaAdminClient) -> None:
    """A broker's own setting, and taken back. The default of all brokers this client refuses to name."""

    def told() -> dict[str, dict[str, Any]]:
        (entries,) = client.describe_configs([ConfigResource("BROKER", "1")], include_synonyms=True)["broker"].values()
        return {name: entry for name, entry in entries.items() if name == "num.partitions"}

    client.alter_configs([ConfigResource("BROKER", "1", {"num.partitions": "2"})])
    assert told()["num.partitions"]["value"] == "2", told()
    assert len(told()["num.partitions"]["synonyms"]) == 2, told()
    client.alter_configs([ConfigResource("BROKER", "1", {"num.partitions": ("DELETE", None)})])
    assert told() == {}


def admin(bootstrap: str, topic: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    broker_settings(client)
    client.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    assert topic in client.list_topics()
    assert len(client.describe_topics([topic])[0]["partitions"]) == 2
    alter(client, bootstrap, topic)
    client.list_groups()
    client.delete_topics([topic])
    assert topic not in client.list_topics()
    client.close()
    print(f"ok admin {topic}")


if __name__ == "__main__":
    verb, rest = sys.argv[1], sys.argv[2:]
    if verb == "produce":
        for part, codec in enumerate(rest[4].split(",")):
            produce(rest[0], rest[1], int(rest[2]) + part * int(rest[3]), int(rest[3]), codec)
    elif verb == "consume":
        consume(rest[0], rest[1], rest[2], int(rest[3]))
    else:
        admin(rest[0], rest[1])
