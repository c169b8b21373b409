"""kill -9 while segments end and are deleted: the log's start never goes back, nothing above it is lost or damaged."""

import random
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.cli.running import logboom, ok
from tests.support.open_records import OPEN_MAX
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

KEPT = 200
ROUNDS = 4


def test_killed_while_it_deletes(tmp_path: Path) -> None:
    data, chance = tmp_path / "data", random.Random(7)
    acked: dict[int, int] = {}
    failed: list[str] = []
    stop = threading.Event()
    with BrokerProcess(data, "--set", "broker.retention_check_interval_s=0.01") as broker:
        small = ["--config", "segment.bytes=16384", "--config", f"logboom.retention.messages={KEPT}"]
        ok("streams", "create", "busy", *small, bootstrap=broker.kafka)

        def told(error: KafkaError | None, message: Message) -> None:
            value, offset = message.value(), message.offset()
            if error is not None:
                failed.append(str(error))
            elif value is not None and offset is not None:
                acked[int(value.split()[0])] = offset

        def write() -> None:
            small_batches = {"linger.ms": 1, "batch.size": 8_000}  # as segments are
            producer = Producer({"bootstrap.servers": broker.kafka, "enable.idempotence": True, **small_batches})
            n = 0
            while not stop.is_set():
                if len(producer) < OPEN_MAX:
                    producer.produce("busy", b"%d " % n + bytes(600), on_delivery=told)
                    n += 1
                producer.poll(0.001)
            assert producer.flush(WAIT_S) == 0

        writer = threading.Thread(target=write)
        writer.start()
        first = -1
        try:
            for _ in range(ROUNDS):
                goal, deadline = len(acked) + chance.randrange(300, 1_000), time.monotonic() + WAIT_S
                while len(acked) < goal:
                    assert time.monotonic() < deadline, "nothing is acked any more"
                    time.sleep(0.001)
                broker.kill9()
                ran = logboom("log", "verify", str(data), "--json")
                assert (ran.code, ran.json["damage"]) == (0, []), ran.out
                broker.restart()
                (held,) = ok("streams", "describe", "busy", "--json", bootstrap=broker.kafka).json["partitions"]
                assert held["first"] >= first
                first = held["first"]
        finally:
            stop.set()
            writer.join()
        assert first > 0, "retention was at work"
        assert not failed, failed[:3]
        read_back(broker.kafka, acked)


def read_back(bootstrap: str, acked: dict[int, int]) -> None:
    """Every acked record above the start is there, at the offset that was told, once and in order.

    Retention goes on beside the reader: where it is quicker, the reader is told and goes on from the new start.
    """
    reader = {"group.id": "check", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **reader})
    start, end = consumer.get_watermark_offsets(TopicPartition("busy", 0), timeout=WAIT_S)
    assert end == max(acked.values()) + 1
    assert end - start >= KEPT
    consumer.assign([TopicPartition("busy", 0, start)])
    found: dict[int, int] = {}
    deadline = time.monotonic() + WAIT_S
    while end - 1 not in found.values() and time.monotonic() < deadline:
        for message in consumer.consume(500, timeout=0.5):
            value, offset = message.value(), message.offset()
            assert value is not None
            assert offset is not None
            number = int(value.split()[0])
            assert number not in found, "nothing twice"
            found[number] = offset
    kept_from, _ = consumer.get_watermark_offsets(TopicPartition("busy", 0), timeout=WAIT_S)
    consumer.close()
    assert end - kept_from >= KEPT
    assert found.items() <= acked.items()
    assert {offset for offset in acked.values() if offset >= kept_from} <= set(found.values())
    assert sorted(found.values()) == list(found.values())
