"""Kafka Streams keeps its tables in compacted changelogs, and has all of them back after its own disk is gone.

The application counts words and joins the counts with tables; it joins two streams within windows of time and looks
the pairs up in a table.
"""

import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.cli.running import ok
from tests.clients.drivers import DriverMissingError, kafka_streams
from tests.clients.reading import is_compacted, read, table
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.clients

T = TypeVar("T")

PARTITIONS = 2
WORDS = [f"word{number}" for number in range(200)]
CHANGELOG = "words-counts-changelog"
READ_BY_THE_APPLICATION = ("lines", "words-counts-repartition", "left", "right")
PAIRS = 2_000
COMPACTED = ("cleanup.policy=compact", "segment.bytes=16384", "min.cleanable.dirty.ratio=0.01")


@pytest.fixture(scope="module")
def command() -> list[str]:
    with skipped_on(DriverMissingError):
        return kafka_streams()


@pytest.mark.in_turn(3)
def test_words_are_counted_exactly_over_a_lost_disk_and_a_killed_broker(command: list[str], tmp_path: Path) -> None:
    """Each kill of the application comes when it has committed all it read: at least once is exactly once then."""
    text, pairs, state = Text(), Pairs(), tmp_path / "state"
    with BrokerProcess(tmp_path / "data", "--set", "broker.cleaner.backoff_ms=20ms") as broker:
        create_streams(broker.kafka)
        counts = Counter[str]()
        with application(command, broker.kafka, state) as process:
            for _ in range(4):
                counts += text.write(broker.kafka, 300)
                wait_until_committed(broker.kafka, process)
            counts += text.write(broker.kafka, 300)
            broker.kill9()
            broker.restart()
            counts += text.write(broker.kafka, 300)
            pairs.write_left(broker.kafka)
            wait_until_committed(broker.kafka, process)
        assert counted(broker.kafka) == expected(counts)
        wait_until(partial(is_compacted, broker.kafka, CHANGELOG), None, "all records of the changelog are still there")
        shutil.rmtree(state)
        with application(command, broker.kafka, state) as process:
            counts += text.write(broker.kafka, 300)
            pairs.write_right(broker.kafka)
            wait_until_committed(broker.kafka, process)
        assert counted(broker.kafka) == expected(counts)
        assert paired(broker.kafka) == Counter(pairs.expected())


@pytest.mark.slow
def test_nothing_is_missing_where_it_is_killed_in_the_middle(command: list[str], tmp_path: Path) -> None:
    """What it had not committed it does again: a count may be too high and a pair there twice; none is missing."""
    text, pairs, state = Text(), Pairs(), tmp_path / "state"
    with BrokerProcess(tmp_path / "data", "--set", "broker.cleaner.backoff_ms=20ms") as broker:
        create_streams(broker.kafka)
        counts = Counter[str]()
        pairs.write_left(broker.kafka)
        for its_disk_is_lost in (False, True, False, True):
            with application(command, broker.kafka, state) as process:
                counts += text.write_until_in_the_middle(broker.kafka, process)
            broker.kill9()
            broker.restart()
            if its_disk_is_lost:
                shutil.rmtree(state)
        with application(command, broker.kafka, state) as process:
            pairs.write_right(broker.kafka)
            broker.kill9()
            broker.restart()
            wait_until_committed(broker.kafka, process)
        found = counted(broker.kafka)
        assert found.keys() == counts.keys()
        for one, count in counts.items():
            more, colour_and_name = found[one].split(" ", 1)
            assert int(more) >= count
            assert colour_and_name == f"colour of {one} name of {one}"
        assert paired(broker.kafka).keys() == set(pairs.expected())


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

    def write_until_in_the_middle(self, bootstrap: str, process: subprocess.Popen[bytes]) -> Counter[str]:
        """Returns while the application has committed some of what was written, and not all."""
        counts = Counter[str]()
        while True:
            before, _ = progress(bootstrap, "lines")
            counts += self.write(bootstrap, 5_000)
            committed, end = wait_until(partial(moved_on, bootstrap, before), process, "nothing is read")
            if committed < end:
                return counts


class Pairs:
    """Two records of one key, of which the second is within the join's window for every even number."""

    def __init__(self) -> None:
        self._base_ms = int(time.time() * 1_000) - PAIRS * 100

    def write_left(self, bootstrap: str) -> None:
        self._write(bootstrap, "left", [self._base_ms + number * 100 for number in range(PAIRS)])

    def write_right(self, bootstrap: str) -> None:
        """At most 10 ms later is within the window. Nothing is late: the next pair comes 100 ms later."""
        times = [self._base_ms + number * 100 + (10 if number % 2 == 0 else 11) for number in range(PAIRS)]
        self._write(bootstrap, "right", times)

    def expected(self) -> list[str]:
        return [f"{word(number)}: {number} {number} colour of {word(number)}" for number in range(0, PAIRS, 2)]

    def _write(self, bootstrap: str, stream: str, times_ms: list[int]) -> None:
        producer = producer_of_tables(bootstrap)
        for number, time_ms in enumerate(times_ms):
            producer.produce(stream, str(number), word(number), timestamp=time_ms)
        assert producer.flush(WAIT_S) == 0


def word(number: int) -> str:
    return WORDS[number % len(WORDS)]


def create_streams(bootstrap: str) -> None:
    for name in ("lines", "left", "right", "paired"):
        ok("streams", "create", name, "--partitions", str(PARTITIONS), bootstrap=bootstrap)
    settings = [word for one in COMPACTED for word in ("--config", one)]
    for name in ("colours", "names", "counted"):
        ok("streams", "create", name, "--partitions", str(PARTITIONS), *settings, bootstrap=bootstrap)
    producer = producer_of_tables(bootstrap)
    # Older than all that is looked up in them: of what it has not read yet, Kafka Streams reads the oldest first.
    an_hour_ago_ms = int(time.time() - 3_600) * 1_000
    for one in WORDS:
        producer.produce("colours", f"colour of {one}", one, timestamp=an_hour_ago_ms)
        producer.produce("names", f"name of {one}", one, timestamp=an_hour_ago_ms)
    assert producer.flush(WAIT_S) == 0


def producer_of_tables(bootstrap: str) -> Producer:
    """Kafka Streams joins streams whose keys are spread as the Java client spreads them."""
    settings = {"partitioner": "murmur2_random", "enable.idempotence": True}
    return Producer({"bootstrap.servers": bootstrap, **settings})


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
        process.wait(WAIT_S)


def wait_until_committed(bootstrap: str, process: subprocess.Popen[bytes]) -> None:
    """Returns once the application has committed the end of all that it reads, where nobody writes any more."""
    wait_until(partial(has_committed, bootstrap), process, "the application does not get to the end")


def wait_until(holds: Callable[[], T | None], process: subprocess.Popen[bytes] | None, failure: str) -> T:
    """What it gives, once that is something; while the application runs, where there is one."""
    deadline = time.monotonic() + WAIT_S
    while not (given := holds()):
        assert process is None or process.poll() is None, "the application ended"
        assert time.monotonic() < deadline, failure
        time.sleep(0.2)
    return given


def has_committed(bootstrap: str) -> bool:
    try:
        # What a stage writes is stored before it commits what it read: once the first stage has committed its end,
        # the second one's end does not move any more.
        committed, ends = progress(bootstrap, *READ_BY_THE_APPLICATION)
    except KafkaException:
        return False  # the application has not created the stream between the two stages yet
    return committed == ends


def moved_on(bootstrap: str, before: int) -> tuple[int, int] | None:
    committed, end = progress(bootstrap, "lines")
    return (committed, end) if committed > before else None


def progress(bootstrap: str, *streams: str) -> tuple[int, int]:
    """Up to where the application has committed, and the ends, each summed over all partitions."""
    partitions = [TopicPartition(name, number) for name in streams for number in range(PARTITIONS)]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "words"})
    try:
        committed = consumer.committed(partitions, timeout=WAIT_S)
        ends = [consumer.get_watermark_offsets(partition, timeout=WAIT_S)[1] for partition in partitions]
    finally:
        consumer.close()
    # The offset of a partition that never had a record is negative.
    return sum(max(0, partition.offset) for partition in committed), sum(ends)


def expected(counts: Counter[str]) -> dict[str, str]:
    return {one: f"{count} colour of {one} name of {one}" for one, count in counts.items()}


def counted(bootstrap: str) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in table(read(bootstrap, "counted")).items()}


def paired(bootstrap: str) -> Counter[str]:
    return Counter(f"{(key or b'').decode()}: {(value or b'').decode()}" for key, value in read(bootstrap, "paired"))
