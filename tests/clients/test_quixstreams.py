"""quixstreams keeps its state in a compacted changelog, and has it back after its own disk is gone."""

import json
import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.cli.running import ok
from tests.clients.drivers import DriverMissingError, quixstreams
from tests.clients.program import Program
from tests.clients.reading import ends, is_compacted, read, table
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S, until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

PARTITIONS: Final = 2
KEYS: Final = 100
PROGRESS: Final = 1_000
"""Records that are counted between two kills."""
CHANGELOG: Final = "changelog__counting--numbers--default"
SETTINGS: Final = (
    "broker.cleaner.backoff_ms=20ms",
    "broker.stream_defaults.segment_ms=2s",
    "broker.stream_defaults.min_cleanable_dirty_ratio=0.01",
)


@pytest.fixture(scope="module")
def command() -> list[str]:
    with skipped_on(DriverMissingError):
        return quixstreams()


def test_counts_are_exact_over_kills_of_both_and_a_lost_disk(command: list[str], tmp_path: Path) -> None:
    """At least once: a record may be applied twice, but none is left out, and no state is lost or becomes older."""
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    with BrokerProcess(tmp_path / "data", *settings) as broker:
        ok("streams", "create", "numbers", "--partitions", str(PARTITIONS), bootstrap=broker.kafka)
        compacted = ("--config", "cleanup.policy=compact")
        ok("streams", "create", "counts", "--partitions", str(PARTITIONS), *compacted, bootstrap=broker.kafka)
        numbers = Numbers(broker.kafka)
        with Application(
            [*command, broker.kafka, str(tmp_path / "state")], tmp_path / "application.log"
        ) as application:
            for _ in range(2):
                with numbers.being_written():
                    application.wait_for_counts(broker.kafka)
                    application.kill9()
                    application.start()
                    application.wait_for_counts(broker.kafka)
                    broker.kill9()
                    broker.restart()
                    application.wait_for_counts(broker.kafka)
                application.wait_until_committed(broker.kafka)
                until(partial(is_compacted, broker.kafka, CHANGELOG), "compaction of the changelog")
                # Of a changelog's records, quixstreams restores only those whose input was committed. Were it killed
                # between the two, compaction could have left none of the key's.
                application.kill9()
                shutil.rmtree(tmp_path / "state")
                application.start()
            with numbers.being_written():
                application.wait_for_counts(broker.kafka)
            application.wait_until_committed(broker.kafka)
        states = {key.decode(): json.loads(value) for key, value in table(read(broker.kafka, "counts")).items()}
        assert {key: state["last"] for key, state in states.items()} == numbers.written
        assert {state["gaps"] for state in states.values()} == {0}
        assert all(state["applied"] >= state["last"] for state in states.values())


class Numbers:
    """Records of the stream `numbers`: those of a key are numbered."""

    def __init__(self, bootstrap: str) -> None:
        self.written = Counter[str]()
        """The last number of each key."""
        self._random = random.Random(5)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})

    @contextmanager
    def being_written(self) -> Iterator[None]:
        """On a thread while the block runs; at its end all are stored."""
        stop = threading.Event()
        thread = threading.Thread(target=self._write, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert self._producer.flush(WAIT_S) == 0

    def _write(self, stop: threading.Event) -> None:
        while not stop.wait(0.02):
            # Not more than is counted soon: while the broker is away, these wait.
            while len(self._producer) < 20:
                key = f"key-{self._random.randrange(KEYS)}"
                self.written[key] += 1
                self._producer.produce("numbers", str(self.written[key]), key)
            self._producer.poll(0)


class Application(Program):
    """The program that counts. As a supervisor would, this starts it again where it ended by itself."""

    def wait_for_counts(self, bootstrap: str) -> None:
        """Returns once it has counted some more records."""
        goal = ends(bootstrap, "counts") + PROGRESS
        until(lambda: self._is_supervised() and ends(bootstrap, "counts") >= goal, "more counts")

    def wait_until_committed(self, bootstrap: str) -> None:
        """Returns once it has committed the end of its input."""
        until(lambda: self._is_supervised() and has_committed(bootstrap), "all input committed")

    def _is_supervised(self) -> bool:
        if self.process.poll() is not None:
            self.start()
        return True


def has_committed(bootstrap: str) -> bool:
    partitions = [TopicPartition("numbers", number) for number in range(PARTITIONS)]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counting"})
    try:
        committed = consumer.committed(partitions, timeout=WAIT_S)
        end = [consumer.get_watermark_offsets(partition, timeout=WAIT_S)[1] for partition in partitions]
    except KafkaException:
        return False  # the group is being loaded
    finally:
        consumer.close()
    return [partition.offset for partition in committed] == end
