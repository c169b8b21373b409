"""A real broker on a file system that forgets what was not synced and fails when told to.

FUSE; needs the right to mount.
"""

import errno
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kio.schema.errors import ErrorCode
from tests.faults.talk import Answer, Talk, get, metric
from tests.support.fusedisk import CannotMountError, FuseDisk
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S, until

from logboom.sim.disk import Always, Chance

STORAGE = ErrorCode.kafka_storage_error
ROUNDS = 2
RECORDS = 60


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FuseDisk]:
    with skipped_on(CannotMountError), FuseDisk(tmp_path / "fuse", capacity_bytes=256 << 20) as mounted:
        yield mounted


def broker_on(disk: FuseDisk, log: Path, *arguments: str) -> BrokerProcess:
    return BrokerProcess(disk.path / "data", *arguments, log_path=log)


def fill(talk: Talk, chance: random.Random, acked: dict[int, dict[int, bytes]], count: int = RECORDS) -> None:
    """Records of many sizes into two partitions; each is acked."""
    for _ in range(count):
        index = chance.randrange(2)
        value = chance.randbytes(chance.choice((10, 300, 3_000, 12_000)))
        answer = talk.produce("orders", value, index=index)
        assert answer.ok, answer
        acked[index][answer.offset] = value


class Load:
    """A client with many records under way. What it was told, and what it sent."""

    def __init__(self, chance: random.Random) -> None:
        self.acked: dict[tuple[int, int], bytes] = {}
        self.sent: set[bytes] = set()
        self._chance = chance

    def _told(self, error: KafkaError | None, message: Message) -> None:
        index, offset, value = message.partition(), message.offset(), message.value()
        if error is None and index is not None and offset is not None and value is not None:
            self.acked[index, offset] = value

    def until_cut_off(self, broker: BrokerProcess, records: int) -> None:
        """Write until so many more were acked, then kill the broker in the middle of it."""
        producer = Producer({"bootstrap.servers": broker.kafka, "linger.ms": 1, "batch.size": 12_000})
        goal = len(self.acked) + records
        while len(self.acked) < goal:
            value = self._chance.randbytes(self._chance.choice((10, 300, 3_000)))
            self.sent.add(value)
            producer.produce("orders", value, partition=self._chance.randrange(2), on_delivery=self._told)
            producer.poll(0 if len(producer) < 200 else 0.05)
        broker.kill9()
        producer.purge()
        producer.flush(WAIT_S)

    def check(self, talk: Talk) -> None:
        found = {
            (index, offset): value for index in range(2) for offset, value in talk.read_all("orders", index).items()
        }
        assert {place: found.get(place) for place in self.acked} == self.acked
        assert set(found.values()) <= self.sent, "nothing but what was sent, and that whole"


def test_a_power_failure_takes_nothing_that_was_acked(disk: FuseDisk, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    load = Load(chance)
    survival: list[Chance] = [Always(False), *([chance] * ROUNDS)]
    with broker_on(disk, tmp_path / "log") as broker:
        with Talk(broker.kafka) as talk:
            assert talk.create("orders", 2, segment_bytes="16384") is ErrorCode.none
        for survives in survival:
            load.until_cut_off(broker, chance.randrange(50, 300))
            disk.power_cut(survives)
            broker.start()
            with Talk(broker.kafka) as talk:
                load.check(talk)
    assert "damage" not in broker.log_text()


def test_a_failed_sync_is_told_everywhere_and_never_tried_again(disk: FuseDisk, tmp_path: Path) -> None:
    acked: dict[int, dict[int, bytes]] = {0: {}, 1: {}}
    segment = "/data/streams/orders-1/00000000000000000000.log"
    syncs: list[str] = []

    def fail_once(operation: str, path: str) -> int | None:
        if operation == "fsync":
            syncs.append(path)
        return errno.EIO if (operation, path) == ("fsync", segment) and syncs.count(segment) == 1 else None

    with broker_on(disk, tmp_path / "log") as broker:
        with Talk(broker.kafka) as talk:
            assert talk.create("orders", 2) is ErrorCode.none
            fill(talk, random.Random(1), acked)
            disk.fault = fail_once
            lost = talk.produce("orders", b"lost", index=1)
            assert (lost.error, "closed for writing" in str(lost.text)) == (STORAGE, True), lost
            for index in (1, 0):  # the disk would sync again, and nobody asks it to
                refused = talk.produce("orders", b"refused", index=index)
                assert refused.error is STORAGE
                assert "Input/output error" in str(refused.text)
            assert talk.create("more") is STORAGE
            assert syncs.count(segment) == 1
            for index, values in acked.items():
                assert talk.read_all("orders", index) == values
        status, reason = get(broker.http, "/readyz")
        assert (status, "Input/output error" in reason) == (503, True)
        assert metric(broker.http, "logboom_log_dir_offline") == 1
        for index in range(2):
            assert metric(broker.http, f'logboom_partition_offline{{partition="{index}",stream="orders"}}') == 1
        assert "log dir offline" in broker.log_text()
        broker.kill9()
        disk.power_cut(Always(False))
        broker.start()
        with Talk(broker.kafka) as talk:
            for index, values in acked.items():
                assert talk.read_all("orders", index) == values
            assert talk.produce("orders", b"again").ok
        assert get(broker.http, "/readyz") == (200, "ready\n")


def test_a_disk_that_hangs_is_told_and_what_is_durable_is_read_meanwhile(disk: FuseDisk, tmp_path: Path) -> None:
    """No error and no answer: to a sync, of whatever it is."""
    answers: list[Answer] = []
    with broker_on(disk, tmp_path / "log", "--set", "broker.disk_hang_s=0.5") as broker:
        with Talk(broker.kafka) as talk, Talk(broker.kafka) as patient:
            assert talk.create("orders") is ErrorCode.none
            assert talk.produce("orders", b"durable").ok
            disk.hang = lambda operation, path: operation in ("fsync", "fsyncdir")
            waits = threading.Thread(target=lambda: answers.append(patient.produce("orders", b"patient")))
            waits.start()
            try:
                timed_out = talk.produce("orders", b"late", timeout_ms=300)
                assert timed_out.error is ErrorCode.request_timed_out
                until(lambda: get(broker.http, "/readyz")[0] == 503)
                assert get(broker.http, "/readyz")[1].startswith("the disk hangs")
                assert metric(broker.http, "logboom_flush_running_seconds") > 0
                assert metric(broker.http, "logboom_log_dir_offline") == 0
                until(lambda: "the disk hangs: reads and writes wait for it" in broker.log_text())
                assert get(broker.http, "/healthz") == (200, "ok\n")
                assert talk.fetch("orders", 0) == (ErrorCode.none, {0: b"durable"})
                assert disk.hanging
            finally:
                disk.go_on()
                waits.join()
            (patience,) = answers
            assert patience.ok
            assert talk.produce("orders", b"again").ok
            found = talk.read_all("orders")
            assert found[0] == b"durable"
            assert sorted(found.values()) == [b"again", b"durable", b"late", b"patient"]
        until(lambda: "the disk answers again" in broker.log_text())
        # A write of a busy machine may take as long as what counts as a hang here.
        until(lambda: get(broker.http, "/readyz") == (200, "ready\n"))
        until(lambda: metric(broker.http, "logboom_flush_running_seconds") == 0)
        assert broker.sigterm() == 0


def test_a_directory_that_cannot_be_synced_takes_the_log_dir_offline(disk: FuseDisk, tmp_path: Path) -> None:
    with broker_on(disk, tmp_path / "log") as broker, Talk(broker.kafka) as talk:
        assert talk.create("orders") is ErrorCode.none
        assert talk.produce("orders", b"a").ok
        disk.fault = lambda operation, path: errno.EIO if (operation, path) == ("fsyncdir", "/data/streams") else None
        assert talk.create("more") is STORAGE
        disk.fault = lambda operation, path: None
        assert talk.produce("orders", b"b").error is STORAGE
        assert talk.read_all("orders") == {0: b"a"}
        assert get(broker.http, "/readyz")[0] == 503


@pytest.mark.parametrize("where", [".log", "durable-end", ".index"])
def test_a_file_that_cannot_be_read_at_the_start(disk: FuseDisk, tmp_path: Path, where: str) -> None:
    """A segment keeps its partition from being served, and that is told; everything else is made again."""
    acked: dict[int, dict[int, bytes]] = {0: {}, 1: {}}
    with broker_on(disk, tmp_path / "log") as broker:
        with Talk(broker.kafka) as talk:
            assert talk.create("orders", 2, segment_bytes="16384") is ErrorCode.none
            fill(talk, random.Random(2), acked)
        broker.sigterm()

        def fault(operation: str, path: str) -> int | None:
            bad = "/orders-1/" in path and path.endswith(where)
            return errno.EIO if bad and operation in ("read", "open") else None

        disk.fault = fault
        broker.start()
        with Talk(broker.kafka) as talk:
            assert talk.read_all("orders", 0) == acked[0]
            if where == ".log":
                assert talk.fetch("orders", 0, 1)[0] is STORAGE
                assert talk.produce("orders", b"x", index=1).error is STORAGE
                status, reason = get(broker.http, "/readyz")
                assert (status, reason.startswith("offline: orders-1")) == (503, True)
                assert metric(broker.http, 'logboom_partition_offline{partition="1",stream="orders"}') == 1
                return
            assert talk.read_all("orders", 1) == acked[1]
            disk.fault = lambda operation, path: None
            assert talk.produce("orders", b"x", index=1).ok
            assert get(broker.http, "/readyz") == (200, "ready\n")
    assert "cannot be read" in broker.log_text()
