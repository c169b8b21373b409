"""kill -9 of the broker again and again under load from three kinds of clients.

Checked at the end: every record a client was told is taken is there, at the offset it was told, once, and in the order
it was sent. Each restart must be clean: the broker becomes ready and reports no damage.
"""

import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from tests.clients.drivers import DRIVERS, DriverMissingError
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

KINDS = ("confluent", "aiokafka", "java")
KILLS = int(os.environ.get("LOGBOOM_TEST_KILLS", "5"))
"""50 in `make faults`; a few on every run of the suite."""


class Flood:
    """One client that sends 0, 1, 2, ... and remembers what it was told."""

    def __init__(self, kind: str, bootstrap: str) -> None:
        driver = next(driver for driver in DRIVERS if driver.name == kind)
        self.kind = kind
        self.stream = f"flood-{kind}"
        self.acked: dict[int, int] = {}
        self.problems: list[str] = []
        self.sent = -1
        self._process = subprocess.Popen(
            [*driver.command(), "flood", bootstrap, self.stream],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.split()
            if words[0] == "acked":
                self.acked[int(words[1])] = int(words[2])
            elif words[0] == "ok":
                self.sent = int(words[2])
            else:
                self.problems.append(line)

    def wait_for_more(self, count: int, timeout_s: float = WAIT_S) -> None:
        """Return once `count` more records were acked."""
        goal = len(self.acked) + count
        deadline = time.monotonic() + timeout_s
        while len(self.acked) < goal:
            assert self._process.poll() is None, f"{self.kind} died"
            assert time.monotonic() < deadline, f"{self.kind}: no acks for {timeout_s} s, {len(self.acked)} so far"
            time.sleep(0.005)

    def finish(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def flood(kind: str, bootstrap: str) -> Iterator[Flood]:
    running = Flood(kind, bootstrap)
    try:
        yield running
    finally:
        if running._process.poll() is None:
            running._process.kill()
            running._process.wait(WAIT_S)


def read_all(bootstrap: str, stream: str) -> dict[int, int]:
    """Offset -> number of everything committed in partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True})
    consumer.assign([TopicPartition(stream, 0, OFFSET_BEGINNING)])
    found: dict[int, int] = {}
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for message in consumer.consume(1_000, timeout=1):
            if message.error() is not None:
                consumer.close()
                return found
            value, offset = message.value(), message.offset()
            assert value is not None
            assert offset is not None
            found[offset] = int(value)
    raise AssertionError(f"{stream} was not read to its end")


@pytest.mark.clients
@pytest.mark.xdist_group("clients")
def test_no_acked_record_is_lost_doubled_or_reordered(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with BrokerProcess(tmp_path / "data") as broker, ExitStack() as stack:
        with skipped_on(DriverMissingError):
            floods = [stack.enter_context(flood(kind, broker.kafka)) for kind in KINDS]
        for number in range(KILLS):
            for each in floods:
                each.wait_for_more(chance.randrange(1, 400))
            broker.kill9()
            broker.restart()
            print(f"kill {number + 1} of {KILLS}: {[len(each.acked) for each in floods]} acked")
        for each in floods:
            each.wait_for_more(50)
            each.finish()
        for each in floods:
            check(each, read_all(broker.kafka, each.stream))
        assert "damage" not in broker.log_text(), "a restart was not clean"


def check(each: Flood, found: dict[int, int]) -> None:
    assert each.problems == []
    assert each.sent > 0
    for number, offset in each.acked.items():
        assert found.get(offset) == number, f"{each.kind}: acked {number} at {offset}, found {found.get(offset)}"
    numbers = [found[offset] for offset in sorted(found)]
    assert len(set(numbers)) == len(numbers), f"{each.kind}: duplicates"
    assert numbers == sorted(numbers), f"{each.kind}: out of order"
    assert set(each.acked) == set(range(each.sent)), f"{each.kind}: not all that was sent was acked at last"
