"""Spark's Kafka connector reads and writes a broker that knows nothing of Spark, also over a kill -9."""

import contextlib
import os
import queue
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic, sleep
from typing import Self

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

from logboom.pipeline.spark.jars import JarsError, cache_dir, fetch_jars
from logboom.pipeline.spark.jvm import java_command, spark_jars
from logboom.pipeline.spark.jvm_archive import ClassArchive

pytestmark = [pytest.mark.clients, pytest.mark.spark]

SCRIPT = Path(__file__).parent / "python" / "spark.py"


@pytest.fixture(scope="module")
def command() -> list[str]:
    if shutil.which("java") is None:
        pytest.skip("java is not here: apt-get install openjdk-17-jre-headless")
    with skipped_on(JarsError):
        jars = [str(jar) for jar in fetch_jars()]
    # The archive that tests.support.class_archive has made, of the same jars: half of the CPU time until the first
    # query has run is that of loading classes.
    archive = ClassArchive(cache_dir().parent, "run", java_command(), [*jars, *spark_jars()], write=False)
    java_options = " ".join(("-XX:TieredStopAtLevel=1", *archive.options))
    return [sys.executable, str(SCRIPT), os.pathsep.join(jars), java_options]


class Spark:
    """A session in a process of its own, told by lines what to do."""

    def __init__(self, command: list[str], bootstrap: str, errors: Path) -> None:
        self._errors = errors
        with errors.open("w") as log:
            self._process = subprocess.Popen(
                [*command, bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ok "):
                self._answers.put(line.strip())
        self._answers.put("it ended")

    def ask(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """Of the oldest command that was not answered yet."""
        answer = self._answers.get(timeout=WAIT_S)
        assert answer.startswith("ok "), self._errors.read_text()[-3_000:]
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(WAIT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def test_round_trip_over_a_killed_broker(command: list[str], tmp_path: Path) -> None:
    """Killed between two of its writes and in the middle of one: the session goes on, and each record is there once."""
    with BrokerProcess(tmp_path / "data") as broker, Spark(command, broker.kafka, tmp_path / "errors") as spark:
        spark.ask("produce", "spark", 0, 2_000, "lz4")
        assert spark.answer() == "ok produced 2000"
        broker.kill9()
        broker.restart()
        spark.ask("produce", "spark", 2_000, 60_000, "zstd")
        wait_until_stored(broker, 2_001)
        broker.kill9()
        broker.restart()
        assert spark.answer() == "ok produced 60000"
        spark.ask("consume", "spark", 62_000)
        assert spark.answer() == "ok consumed 62000"


def wait_until_stored(broker: BrokerProcess, records: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.kafka, "group.id": "watch"})
    deadline = monotonic() + WAIT_S
    while consumer.get_watermark_offsets(TopicPartition("spark", 0), timeout=WAIT_S)[1] < records:
        assert monotonic() < deadline, "Spark sent nothing"
        sleep(0.01)
    consumer.close()
