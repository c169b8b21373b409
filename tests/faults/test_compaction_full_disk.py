"""A broker that compacts on a real file system without room for the new segment: the log stays as it is, the cleaner
says why and tries again, and what was acked is there before and after. Needs the right to mount."""

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kio.schema.errors import ErrorCode
from tests.cli.running import logboom, ok
from tests.faults.talk import Talk, metric
from tests.faults.test_disk_mounts import STORAGE, Loop
from tests.faults.test_kill_compaction import Table, read_table
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.slow

SEGMENT_BYTES = 1 << 20
VALUE_BYTES = 20_000
KEYS = 400
"""Some eight segments, of which compaction removes little: it needs nearly as much room for each as that has."""
SETTINGS = (
    f"segment.bytes={SEGMENT_BYTES}",
    "cleanup.policy=compact",
    "min.cleanable.dirty.ratio=0.01",
    "min.compaction.lag.ms=86400000",
)


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    made = Loop(tmp_path, 64)
    yield made
    subprocess.run(["umount", "--lazy", str(made.path)], check=False, timeout=WAIT_S)


class Writer:
    """Puts keys, and knows what is acked."""

    def __init__(self, bootstrap: str) -> None:
        self.table: Table = {}
        self.failed: list[str] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.size": 50_000})

    def put(self, key: bytes, value: bytes) -> None:
        self._producer.produce("table", value, key, on_delivery=self._told)
        self.table.pop(key, None)
        self.table[key] = value

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))

    def finish(self) -> None:
        assert self._producer.flush(WAIT_S) == 0
        assert not self.failed, self.failed[:3]


def unfinished(loop: Loop) -> list[Path]:
    """Files of a compaction that is not done."""
    found = (loop.path / "data/streams/table-0").iterdir()
    return [path for path in found if path.suffix in (".cleaned", ".swap")]


def fill_but(loop: Loop, room_bytes: int) -> Path:
    """Take all room but so much, of which the metadata's log needs a little; the file to remove."""
    ballast = loop.fill()
    os.truncate(ballast, max(0, ballast.stat().st_size - room_bytes))
    return ballast


@pytest.mark.parametrize("room_bytes", [100_000, 300_000, 700_000])
def test_a_compaction_without_room_is_postponed_and_done_once_there_is(
    loop: Loop, tmp_path: Path, room_bytes: int
) -> None:
    chance = random.Random(3)
    data = loop.path / "data"
    with BrokerProcess(data, "--set", "broker.cleaner.backoff_ms=20ms", log_path=tmp_path / "log") as broker:
        settings = [word for setting in SETTINGS for word in ("--config", setting)]
        ok("streams", "create", "table", *settings, bootstrap=broker.kafka)
        with Talk(broker.kafka) as talk:
            assert talk.create("other") is ErrorCode.none
        writer = Writer(broker.kafka)
        for number in range(KEYS):
            if number % 50 == 0:
                writer.put(b"again", chance.randbytes(VALUE_BYTES))
            writer.put(b"key-%d" % number, chance.randbytes(VALUE_BYTES))
        writer.finish()
        ballast = fill_but(loop, room_bytes)
        ok("streams", "alter", "table", "--config", "min.compaction.lag.ms=0", bootstrap=broker.kafka)
        until(lambda: "compaction postponed" in broker.log_text(), "a compaction without room")
        assert "The disk is full" in broker.log_text().split("compaction postponed")[-1].partition("\n")[0]
        with Talk(broker.kafka) as talk:
            answer = talk.produce("other", chance.randbytes(900_000))
        assert (answer.error, "The disk is full" in str(answer.text)) == (STORAGE, True), answer
        assert metric(broker.http, "logboom_log_dir_offline") == 0
        until(lambda: not unfinished(loop), "what a postponed compaction wrote is removed")
        assert read_table(broker.kafka) == (writer.table, KEYS + KEYS // 50)
        broker.kill9()
        ran = logboom("log", "verify", str(data), "--json")
        assert (ran.code, ran.json["damage"]) == (0, []), ran.out
        broker.restart()
        ballast.unlink()
        until(lambda: metric(broker.http, "logboom_compacted_away_records_total") > 0, "a compaction, there is room")
        until(lambda: not unfinished(loop), "its files have their names")
        writer.put(b"last", b"there is room again")
        writer.finish()
        assert read_table(broker.kafka)[0] == writer.table
        assert broker.sigterm() == 0
        broker.start()
        assert read_table(broker.kafka)[0] == writer.table
    assert "damage" not in broker.log_text()
