"""Fifty peers that ask for 50 MiB each and never read: bounded memory, and others are served meanwhile."""

import re
import socket
import struct
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from kio.index import load_request_schema
from tests.kafka.door import frame, written
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.kafka.wire.messages import make, milliseconds, nested

MIB = 1 << 20
PEERS = 50
RECORDS = 60
UNSENT_MAX = 64 * MIB
SLACK = 96 * MIB
"""What the interpreter, its allocator and the kernel's buffers may take beside what is counted."""


def rss_bytes(pid: int) -> int:
    return int(re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0]) * 1024


def metric(broker: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=WAIT_S) as answer:
        found = re.findall(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.MULTILINE)
    return float(found[0])


def fill(broker: BrokerProcess) -> None:
    """So many records of nearly a mebibyte in partition 0 of `t`."""
    producer = Producer({"bootstrap.servers": broker.kafka, "linger.ms": 0, "batch.num.messages": 1})
    for number in range(RECORDS):
        producer.produce("t", struct.pack(">i", number) * 240_000, partition=0)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def fetch_request(number: int) -> bytes:
    """Each asks for a little less than the one before, so that no two can share a reply."""
    cls = load_request_schema(1, 4)
    topic = nested(cls, "topics")
    part = make(nested(topic, "partitions"), partition=0, fetch_offset=0, partition_max_bytes=50 * MIB - number)
    fields = {"replica_id": -1, "max_wait": milliseconds(100), "min_bytes": 1, "isolation_level": 0}
    entity = make(cls, max_bytes=50 * MIB, topics=(make(topic, topic="t", partitions=(part,)),), **fields)
    return frame(1, 4, 1, written(entity))


def until(condition: Iterator[bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    for done in condition:
        if done:
            return
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_fifty_peers_that_never_read_cost_a_bounded_amount(tmp_path: Path) -> None:
    with (
        BrokerProcess(
            tmp_path / "data", environment={"LOGBOOM_KAFKA__MAX_UNSENT_TOTAL_BYTES": str(UNSENT_MAX)}
        ) as broker,
        ExitStack() as sockets,
    ):
        fill(broker)
        before = rss_bytes(broker.pid)
        host, port = broker.kafka.split(":")
        for number in range(PEERS):
            peer = sockets.enter_context(socket.create_connection((host, int(port)), WAIT_S))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.sendall(fetch_request(number))
        answered = 'logboom_kafka_api_replies_total{api="Fetch"}'
        until(metric(broker, answered) >= PEERS for _ in iter(int, 1))
        peak = rss_bytes(broker.pid)
        # Fifty whole replies would be 2.5 GiB. Beyond the limit each gets one batch.
        assert peak - before < UNSENT_MAX + PEERS * MIB + SLACK, f"{before} {peak}"
        assert metric(broker, "logboom_kafka_unsent_bytes") < UNSENT_MAX + PEERS * MIB + MIB
        assert metric(broker, 'logboom_limit_crossed_total{limit="kafka.max_unsent_total_bytes"}') > 0

        consumer = Consumer({"bootstrap.servers": broker.kafka, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition("t", 0, 0)])
        numbers = list[int]()
        deadline = time.monotonic() + WAIT_S
        while len(numbers) < RECORDS:
            assert time.monotonic() < deadline, f"{len(numbers)} records only"
            message = consumer.poll(1.0)
            if message is not None and not message.error():
                numbers.append(struct.unpack(">i", bytes(message.value() or b"")[:4])[0])
        consumer.close()
        assert numbers == list(range(RECORDS)), "others are served meanwhile"
        assert rss_bytes(broker.pid) - before < UNSENT_MAX + PEERS * MIB + SLACK
        print(f"rss: {before // MIB} MiB before, {peak // MIB} MiB with {PEERS} peers that never read")
