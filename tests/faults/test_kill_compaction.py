"""kill -9 while a stream is compacted under load: its records make exactly the table that was written."""

import os
import random
import threading
import time
import urllib.request
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.cli.running import logboom, ok
from tests.support.open_records import OPEN_MAX
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

KILLS: Final = max(3, int(os.environ.get("LOGBOOM_TEST_KILLS", "0")))
KEYS: Final = 300
VALUE_BYTES: Final = 4_000
"""So that the log is not one of those that the broker compacts without its process for that."""
SETTINGS: Final = ("segment.bytes=262144", "cleanup.policy=compact", "min.cleanable.dirty.ratio=0.1")

Table = dict[bytes, bytes]


class Writer:
    """Puts and deletes keys with one idempotent producer over all lives of the broker, in one order."""

    def __init__(self, bootstrap: str) -> None:
        self.table: Table = {}
        """What is to be there once all is acked."""
        self.acked = 0
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._chance = random.Random(7)
        small_batches = {"linger.ms": 1, "batch.size": 16_000, "compression.type": "zstd"}
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **small_batches})
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            if len(self._producer) < OPEN_MAX:
                number += 1
                key = b"key-%d" % self._chance.randrange(KEYS)
                value = None if self._chance.random() < 0.1 else b"%d " % number + self._chance.randbytes(VALUE_BYTES)
                self._producer.produce("table", value, key, on_delivery=self._told)
                self.table.pop(key, None)
                if value is not None:
                    self.table[key] = value
            self._producer.poll(0.001)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        self.acked += error is None
        if error is not None:
            self.failed.append(str(error))

    def finish(self) -> None:
        """Stop, and wait for all acks."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0
        assert not self.failed, self.failed[:3]


@pytest.mark.timeout(1200 + 60 * KILLS)
def test_killed_while_it_compacts(tmp_path: Path) -> None:
    data, chance = tmp_path / "data", random.Random(11)
    with BrokerProcess(data, "--set", "broker.cleaner.backoff_ms=20ms") as broker:
        settings = [word for setting in SETTINGS for word in ("--config", setting)]
        ok("streams", "create", "table", *settings, bootstrap=broker.kafka)
        writer = Writer(broker.kafka)
        try:
            for _ in range(KILLS):
                goal, deadline = writer.acked + chance.randrange(1_000, 4_000), time.monotonic() + WAIT_S
                while writer.acked < goal or compactions(broker) == 0:
                    assert time.monotonic() < deadline, "nothing is acked or compacted any more"
                    time.sleep(0.01)
                broker.kill9()
                ran = logboom("log", "verify", str(data), "--json")
                assert (ran.code, ran.json["damage"]) == (0, []), ran.out
                broker.restart()
        finally:
            writer.finish()
        deadline = (
            time.monotonic() + WAIT_S
        )  # its process has the lowest priority, and gets its turn late when all is busy
        while True:
            found, records = read_table(broker.kafka)
            assert found == writer.table
            if records < writer.acked / 2:
                break
            assert time.monotonic() < deadline, f"{records} of {writer.acked} are left: nothing compacts any more"


def compactions(broker: BrokerProcess) -> float:
    """How many there were in this life of the broker."""
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=WAIT_S) as reply:
        lines = reply.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("logboom_compactions_total ")))


def read_table(bootstrap: str) -> tuple[Table, int]:
    """The table that the stream makes from its start to its end, and how many records that took."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True})
    partition = TopicPartition("table", 0, 0)
    consumer.assign([partition])
    table: Table = {}
    offsets: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        key, value, offset = message.key(), message.value(), message.offset()
        assert isinstance(key, bytes)
        assert offset is not None
        offsets.append(offset)
        table.pop(key, None)
        if value is not None:
            table[key] = value
    else:
        raise AssertionError(f"the end was not reached: {offsets[-3:]}")
    consumer.close()
    assert offsets == sorted(set(offsets))
    return table, len(offsets)
