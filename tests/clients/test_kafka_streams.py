"""Kafka Streams keeps its tables in compacted changelogs, and has all of them back after its own disk is gone."""

import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.cli.running import ok
from tests.clients.drivers import DriverMissingError, kafka_streams
from tests.support.server import BrokerProcess

pytestmark = pytest.mark.clients

WAIT_S = 90.0
PARTITIONS = 2
WORDS = [f"word{number}" for number in range(200)]
CHANGELOG = "words-counts-changelog"
READ_BY_THE_APPLICATION = ("lines", "words-counts-repartition")
COMPACTED = ("cleanup.policy=compact", "segment.bytes=16384", "min.cleanable.dirty.ratio=0.01")


@pytest.fixture(scope="module")
def command() -> list[str]:
    try:
        return kafka_streams()
    except DriverMissingError as missing:
        pytest.skip(str(missing))


def test_words_are_counted_exactly_over_a_lost_disk_and_a_killed_broker(command: list[str], tmp_path: Path) -> None:
    """Each kill of the application comes when it has committed all it read: at least once is exactly once then."""
    text, state = Text(), tmp_path / "state"
    with BrokerProcess(tmp_path / "data", "--set", "broker.cleaner.backoff_ms=20ms") as broker:
        create_streams(broker.kafka)
        table = Counter[str]()
        with application(command, broker.kafka, state) as process:
            for _ in range(4):
                table += text.write(broker.kafka, 300)
                wait_until_committed(broker.kafka, process)
            table += text.write(broker.kafka, 300)
            broker.kill9()
            broker.restart()
            table += text.write(broker.kafka, 300)
            wait_until_committed(broker.kafka, process)
        assert counted(broker.kafka) == expected(table)
        wait_until_compacted(broker.kafka)
        shutil.rmtree(state)
        with application(command, broker.kafka, state) as process:
            table += text.write(broker.kafka, 300)
            wait_until_committed(broker.kafka, process)
        assert counted(broker.kafka) == expected(table)


class Text:
    """Lines of words, which a producer writes to `lines`."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    def write(self, bootstrap: str, lines: int) -> Counter[str]:
        """How often each word is in them."""
        counts = Counter[str]()
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        for _ in range(lines):
            words = self._random.choices(WORDS, k=10)
            counts.update(words)
            producer.produce("lines", " ".join(words))
        assert producer.flush(WAIT_S) == 0
        return counts


def create_streams(bootstrap: str) -> None:
    ok("streams", "create", "lines", "--partitions", str(PARTITIONS), bootstrap=bootstrap)
    settings = [word for one in COMPACTED for word in ("--config", one)]
    for name in ("colours", "names", "counted"):
        ok("streams", "create", name, "--partitions", str(PARTITIONS), *settings, bootstrap=bootstrap)
    # Kafka Streams joins tables whose keys are spread as the Java client spreads them.
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for word in WORDS:
        producer.produce("colours", f"colour of {word}", word)
        producer.produce("names", f"name of {word}", word)
    assert producer.flush(WAIT_S) == 0


@contextmanager
def application(command: list[str], bootstrap: str, state: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Ended by SIGKILL: it commits nothing more and does not leave its group."""
    log = state.with_name("application.log")
    with log.open("ab") as output:
        process = subprocess.Popen([*command, bootstrap, str(state)], stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    except BaseException:
        print(log.read_text(errors="replace")[-4_000:])
        raise
    finally:
        process.kill()
        process.wait(30)


def wait_until_committed(bootstrap: str, process: subprocess.Popen[bytes]) -> None:
    """Returns once the application has committed the end of all that it reads, where nobody writes any more."""
    deadline = time.monotonic() + WAIT_S
    while not has_committed(bootstrap):
        assert process.poll() is None, "the application ended"
        assert time.monotonic() < deadline, "the application does not get to the end"
        time.sleep(0.2)


def has_committed(bootstrap: str) -> bool:
    partitions = [TopicPartition(name, number) for name in READ_BY_THE_APPLICATION for number in range(PARTITIONS)]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "words"})
    try:
        # What a stage writes is stored before it commits what it read: once the first stage has committed its end,
        # the second one's end does not move any more.
        committed = consumer.committed(partitions, timeout=10)
        ends = [consumer.get_watermark_offsets(partition, timeout=10)[1] for partition in partitions]
    except KafkaException:
        return False  # the application has not created the stream between the two stages yet
    finally:
        consumer.close()
    # The offset of a partition that never had a record is negative.
    return [max(0, partition.offset) for partition in committed] == ends


def wait_until_compacted(bootstrap: str) -> None:
    """Returns once the changelog has fewer records than were written to it; its last segments keep all of theirs."""
    deadline = time.monotonic() + WAIT_S
    while (read := read_all(bootstrap, CHANGELOG))[0] == read[1]:
        assert time.monotonic() < deadline, f"all of {read[1]} records are still there"
        time.sleep(0.1)


def expected(table: Counter[str]) -> dict[str, str]:
    return {word: f"{count} colour of {word} name of {word}" for word, count in table.items()}


def counted(bootstrap: str) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in read_all(bootstrap, "counted")[2].items()}


def read_all(bootstrap: str, stream: str) -> tuple[int, int, dict[bytes, bytes]]:
    """How many records there are and were, and the latest value of each key."""
    records, offsets, table = 0, 0, dict[bytes, bytes]()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    try:
        for number in range(PARTITIONS):
            offsets += consumer.get_watermark_offsets(TopicPartition(stream, number), timeout=WAIT_S)[1]
            consumer.assign([TopicPartition(stream, number, 0)])
            while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                records += 1
                table[key] = value
            assert message is not None, "the end of the partition did not come"
    finally:
        consumer.close()
    return records, offsets, table
