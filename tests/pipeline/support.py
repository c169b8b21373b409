"""What the pipeline's tests share: a router in a process of its own, and readers of what came out."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from tests.support.spark_jvms import SparkJvms
from tests.support.waiting import WAIT_S

from logboom.pipeline.run.progress import Snapshot

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17 or newer")


def named_file(directory: Path, name: str, text: str) -> Path:
    """The file of a pipeline of this name, for which NAME stands in the text."""
    file = directory / f"{name}.yaml"
    file.write_text(text.replace("NAME", name))
    return file


def make_stream(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_S)


def publish(bootstrap: str, stream: str, values: Iterator[bytes] | list[bytes], partitions: int) -> None:
    """One record after the other, round the partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True})
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(stream, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def records(bootstrap: str, stream: str) -> list[Any]:
    """Every record a stream holds."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        topics = consumer.list_topics(timeout=WAIT_S).topics
        if stream not in topics:
            return []
        places = [TopicPartition(stream, partition, 0) for partition in topics[stream].partitions]
        marks = {place.partition: consumer.get_watermark_offsets(place, timeout=WAIT_S) for place in places}
        left = {partition: end for partition, (start, end) in marks.items() if end > start}
        consumer.assign([TopicPartition(stream, partition, marks[partition][0]) for partition in left])
        found: list[Any] = []
        deadline = time.monotonic() + WAIT_S
        while left:
            assert time.monotonic() < deadline, f"stream {stream} cannot be read to its end: {left}"
            message = consumer.poll(0.5)
            if message is None or message.error() is not None:
                continue
            found.append(message)
            partition, offset = message.partition() or 0, message.offset() or 0
            if offset + 1 >= left.get(partition, 1 << 62):
                del left[partition]
        return found
    finally:
        consumer.close()


def header(message: Any, name: str) -> str | None:
    return next((value.decode() for key, value in message.headers() or () if key == name), None)


def scraped(http: str) -> dict[tuple[str, str], float]:
    """What a pipeline's /metrics says: (series, its label beside the pipeline's name) -> value; {} while it starts."""
    try:
        with urllib.request.urlopen(f"http://{http}/metrics", timeout=WAIT_S) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return {}
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            label = next((value for key, value in sample.labels.items() if key != "pipeline"), "")
            found[sample.name, label] = sample.value
    return found


def archive_ids(root: Path) -> Counter[str]:
    """How often each event stands in an archive, as any reader of Parquet would see it."""
    if not any(root.glob("[!_]*")):
        return Counter()
    return Counter(pq.read_table(root, columns=["event_id"]).column("event_id").to_pylist())


def ledger(checkpoint: Path) -> dict[str, Any]:
    """The newest entry of a pipeline's book."""
    newest = max((checkpoint / "ledger").glob("*.json"), key=lambda path: int(path.stem))
    entry: dict[str, Any] = json.loads(newest.read_text())
    return entry


def fill_disk(path: Path, but_bytes: int = 0) -> None:
    """Takes all the room that a file system has, but for so much, with a file."""
    with path.open("wb", buffering=0) as filler:
        for size in (1 << 16, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(size))
        filler.truncate(filler.tell() - but_bytes)


def descendants(root: int) -> set[int]:
    """Process ids of a process and of all below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def all_ended(pids: set[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


class Said:
    """A display that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.last: Snapshot | None = None

    def show(self, snapshot: Snapshot) -> None:
        self.last = snapshot

    def notify(self, line: str) -> None:
        self.lines.append(line)

    def close(self, snapshot: Snapshot) -> None:
        self.last = snapshot


class RouterProcess:
    """`logboom pipeline run`, or another command that runs a pipeline, in a process group of its own."""

    def __init__(
        self, file: Path, bootstrap: str, *arguments: str, command: str = "run", jvms: SparkJvms | None = None
    ) -> None:
        """`jvms`: where it gets its JVM from; by default it starts one."""
        self._environment = None if jvms is None else jvms.environment
        self._command = [sys.executable, "-m", "logboom.cli", "pipeline", command, str(file), "-b", bootstrap, "--json"]
        self._command += ["--master", "local[2]", *arguments]
        self._log = file.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill9()
        if error is not None:
            print(f"the router's log ends with:\n{self.log_text()[-4_000:]}", file=sys.stderr)

    @property
    def command(self) -> list[str]:
        """The interpreter, `-m logboom.cli pipeline`, the command and its arguments."""
        return list(self._command)

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

    def kill9(self, *, group: bool = True) -> None:
        """The driver, or with `group` everything it started too."""
        with contextlib.suppress(ProcessLookupError):
            if group:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait(WAIT_S)

    def sigterm(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)

    def wait(self) -> int:
        return self.process.wait(WAIT_S)

    def alive(self) -> bool:
        return self.process.poll() is None
