"""Spark's Kafka connector reads and writes a broker that knows nothing of Spark, also over a kill -9."""

import shutil
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.server import BrokerProcess

from logboom.pipeline.spark.jars import JarsError, fetch_jars

pytestmark = [pytest.mark.clients, pytest.mark.spark]

SCRIPT = Path(__file__).parent / "python" / "spark.py"
WAIT_S = 200


@pytest.fixture(scope="module")
def command() -> list[str]:
    if shutil.which("java") is None:
        pytest.skip("java is not here: apt-get install openjdk-17-jre-headless")
    try:
        jars = fetch_jars()
    except JarsError as missing:
        pytest.skip(str(missing))
    return [sys.executable, str(SCRIPT), ",".join(map(str, jars))]


def test_round_trip_over_a_killed_broker(command: list[str], tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        produce(command, broker, 0, 2_000, "lz4")
        broker.kill9()
        broker.restart()
        sending = subprocess.Popen(
            [*command, "produce", broker.kafka, "spark", "2000", "60000", "zstd"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until_stored(broker, 2_001)
            broker.kill9()
            broker.restart()
            _, err = sending.communicate(timeout=WAIT_S)
        finally:
            sending.kill()
            sending.communicate()
        assert sending.returncode == 0, err[-3_000:]
        done = subprocess.run(
            [*command, "consume", broker.kafka, "spark", "none", "62000"],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        assert done.stdout.splitlines()[-1] == "ok consumed 62000"


def produce(command: list[str], broker: BrokerProcess, first: int, count: int, codec: str) -> None:
    arguments = ["produce", broker.kafka, "spark", str(first), str(count), codec]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]


def wait_until_stored(broker: BrokerProcess, records: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.kafka, "group.id": "watch"})
    deadline = monotonic() + WAIT_S
    while consumer.get_watermark_offsets(TopicPartition("spark", 0), timeout=10)[1] < records:
        assert monotonic() < deadline, "Spark sent nothing"
        sleep(0.01)
    consumer.close()
