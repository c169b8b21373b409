"""A collector in a process of its own, and a reader of what came out at the other end."""

import signal
import sys
import urllib.request
from pathlib import Path
from typing import NamedTuple, Self, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from tests.support.commands import LogboomProcess
from tests.support.waiting import WAIT_S


class Got(NamedTuple):
    """A record as a consumer sees it."""

    value: bytes
    key: bytes
    headers: dict[str, bytes]


class CollectorProcess:
    """`logboom collect ...`, kept over restarts. Its log is the file `log_path`."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.log_path = directory / "collector.log"
        self._directory = directory
        self._arguments = arguments
        self._process: LogboomProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill9()
        if kind is not None:
            print(f"the collector's log ends with:\n{self.log_text()[-4000:]}", file=sys.stderr)

    def start(self) -> None:
        """Start it, again if need be."""
        with self.log_path.open("ab") as log:
            self._process = LogboomProcess(["collect", *self._arguments], cwd=self._directory, stdout=log, stderr=log)

    def kill9(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def sigterm(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Until it ends by itself; the exit code."""
        assert self._process is not None
        return self._process.wait(WAIT_S)

    def log_text(self) -> str:
        """All it said."""
        return self.log_path.read_text()


def consume(bootstrap: str, stream: str) -> list[Got]:
    """Everything in the stream now; nothing where it does not exist yet."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(stream, timeout=WAIT_S).topics[stream].partitions
        return [record for index in sorted(partitions) for record in _consume(consumer, stream, index)]
    except KafkaException:
        return []
    finally:
        consumer.close()


def _consume(consumer: Consumer, stream: str, index: int) -> list[Got]:
    _, high = consumer.get_watermark_offsets(TopicPartition(stream, index), timeout=WAIT_S)
    consumer.assign([TopicPartition(stream, index, OFFSET_BEGINNING)])
    records: list[Got] = []
    position = 0
    while position < high:
        for message in consumer.consume(min(10_000, high - position), timeout=5):
            if message.error():
                raise KafkaException(message.error())
            position = (message.offset() or 0) + 1
            headers = dict(cast("list[tuple[str, bytes]]", message.headers() or []))
            records.append(Got(message.value() or b"", message.key() or b"", headers))
    return records


def values(records: list[Got]) -> list[bytes]:
    """Of each record."""
    return [record.value for record in records]


def metric(address: str, name: str) -> float:
    """A number from a /metrics page; -1 where there is no page or no such number yet."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as page:
            for line in page.read().decode().splitlines():
                if line.startswith(name):
                    return float(line.split()[-1])
    except OSError:
        pass
    return -1.0
