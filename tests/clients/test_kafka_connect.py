"""Kafka Connect in distributed mode keeps its connectors, their offsets and their state in compacted streams.

Lines of files go into a stream by file sources and out of it into one file by a file sink, over killed and frozen
workers, a killed broker, and the loss of all of them at once. Connect promises at least once for both ways.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.cli.running import ok
from tests.clients.connect_worker import ConnectWorker, properties
from tests.clients.drivers import DriverMissingError, kafka_connect
from tests.clients.reading import is_compacted, read
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S, until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

PARTITIONS: Final = 4
SOURCES: Final = ("orders", "clicks", "audits")
SINK_TASKS: Final = 2
LINES: Final = 20_000
"""Written to each source in each round."""

WORKER: Final = """
bootstrap.servers={bootstrap}
group.id=connect
plugin.discovery=service_load
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=connect-configs
config.storage.replication.factor=1
config.storage.segment.ms=1000
config.storage.min.cleanable.dirty.ratio=0.01
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
offset.storage.partitions=3
offset.storage.segment.ms=1000
offset.storage.min.cleanable.dirty.ratio=0.01
status.storage.topic=connect-status
status.storage.replication.factor=1
status.storage.partitions=2
offset.flush.interval.ms=200
# The shortest times in which the loss of a worker is noticed and its tasks go to another one.
session.timeout.ms=6000
heartbeat.interval.ms=1000
rebalance.timeout.ms=10000
scheduled.rebalance.max.delay.ms=1000
worker.unsync.backoff.ms=1000
# Longer than the broker is away: a task that Connect does not wait for stores its older offset over its successor's.
task.shutdown.graceful.timeout.ms=60000
consumer.session.timeout.ms=6000
consumer.heartbeat.interval.ms=1000
"""


@pytest.fixture(scope="module")
def command() -> list[str]:
    with skipped_on(DriverMissingError):
        return kafka_connect()


def test_every_line_arrives_over_lost_workers_and_a_lost_broker(command: list[str], tmp_path: Path) -> None:
    files = Files(tmp_path)
    with BrokerProcess(tmp_path / "data", "--set", "broker.cleaner.backoff_ms=20ms") as broker:
        ok("streams", "create", "lines", "--partitions", str(PARTITIONS), bootstrap=broker.kafka)
        with workers(command, broker.kafka, tmp_path) as (one, two):
            connect = Connect([one, two])
            connect.start_all(files)
            connect.change_and_delete()
            connect.wait_until_shared()
            files.write()
            one.kill9()
            files.write()
            connect.wait_until_running([two])
            one.start()
            connect.wait_until_shared()

            files.write()
            broker.kill9()
            files.write()
            broker.restart()
            connect.wait_until_read(files)

            connect.change_and_delete()  # a new record ends the segment of the old ones, which may be compacted then
            until(partial(is_compacted, broker.kafka, "connect-offsets"), "compaction of offsets")
            until(partial(is_compacted, broker.kafka, "connect-configs"), "compaction of settings")
            settings = connect.settings()
            assert settings.keys() == {*SOURCES, "sink"}
            for process in (broker, one, two):
                process.kill9()
            for process in (broker, one, two):
                process.start()
            connect.wait_until_shared()
            assert connect.settings() == settings
            # Each source goes on where it was: its offset was kept, and what it has read is not read again.
            before = lines(broker.kafka)
            files.write()
            connect.wait_until_read(files)
            assert lines(broker.kafka) - before == Counter(files.last_round())

            # A task that goes on after its worker was frozen stores an offset that is older than the one it finds.
            files.write()
            with two.frozen():
                connect.wait_until_running([one])
                files.write()
                connect.wait_until_read(files)
            connect.wait_until_shared()
            until(files.all_in_sink, "all lines in the file of the sink")
        assert lines(broker.kafka).keys() == files.lines
        assert files.sink_lines() == files.lines
        assert policies(broker.kafka) == {"compact"}


class Files:
    """The files that the sources read and the one that the sink writes."""

    def __init__(self, directory: Path) -> None:
        self.sources = {name: directory / f"{name}.log" for name in SOURCES}
        self.sink = directory / "sink.log"
        self.lines: set[str] = set()
        self._rounds = 0
        for path in self.sources.values():
            path.touch()

    def write(self) -> None:
        """Append lines, no two of them alike, to each source."""
        self._rounds += 1
        for name, path in self.sources.items():
            with path.open("a") as file:
                file.writelines(f"{line}\n" for line in self._round(name))
            self.lines.update(self._round(name))

    def last_round(self) -> list[str]:
        return [line for name in SOURCES for line in self._round(name)]

    def _round(self, name: str) -> list[str]:
        return [f"{name} {self._rounds} {number} {'x' * 80}" for number in range(LINES)]

    def all_in_sink(self) -> bool:
        return self.sink_lines() >= self.lines

    def sink_lines(self) -> set[str]:
        return set(self.sink.read_text().splitlines()) if self.sink.exists() else set()


class Connect:
    """The cluster that the workers are."""

    def __init__(self, members: list[ConnectWorker]) -> None:
        self._members = members
        self._tasks = dict.fromkeys(SOURCES, 1) | {"sink": SINK_TASKS}

    def start_all(self, files: Files) -> None:
        sources = {name: {"file": str(path), "topic": "lines"} for name, path in files.sources.items()}
        for name, settings in sources.items():
            self._start(name, "FileStreamSource", tasks_max="1", batch_size="2000", **settings)
        self._start("sink", "FileStreamSink", tasks_max=str(SINK_TASKS), file=str(files.sink), topics="lines")

    def _start(self, name: str, kind: str, **settings: str) -> None:
        keys = {key.replace("_", "."): value for key, value in settings.items()}
        connector = {"connector.class": f"org.apache.kafka.connect.file.{kind}Connector"}
        self._members[0].configure(name, {**connector, **keys})

    def change_and_delete(self) -> None:
        """Settings that become others and a connector that becomes none leave records for compaction to clean."""
        for text in ("of the first time", "of the second time"):
            self._start("deleted", "FileStreamSource", tasks_max="1", topic=text, file="/dev/null")
        until(partial(self._delete, "deleted"), "connector deleted")

    def _delete(self, name: str) -> bool:
        self._members[0].ask("DELETE", f"/connectors/{name}")
        return name not in (self._members[0].ask("GET", "/connectors") or [name])

    def settings(self) -> Any:
        """Of all connectors that there are."""
        found = until(partial(self._members[0].ask, "GET", "/connectors?expand=info"), "the settings")
        return {name: one["info"]["config"] for name, one in found.items()}

    def wait_until_running(self, members: list[ConnectWorker]) -> None:
        """Returns once all tasks run, on these workers and no others."""
        until(partial(self._all_run, members[0], members), f"all tasks on {[member.id for member in members]}")

    def wait_until_shared(self) -> None:
        """Returns once all tasks run, some on each worker, and each worker knows it."""
        for member in self._members:
            until(partial(self._all_run, member, self._members), f"tasks on each worker, told by {member.id}")

    def _all_run(self, asked: ConnectWorker, members: list[ConnectWorker]) -> bool:
        return self._places(asked) == {member.id for member in members}

    def _places(self, asked: ConnectWorker) -> set[str]:
        """The workers on which the tasks run; none where not all of them run."""
        places: set[str] = set()
        for name, count in self._tasks.items():
            found = asked.tasks(name, count)
            if not found:
                return set()
            places.update(found)
        return places

    def wait_until_read(self, files: Files) -> None:
        """Returns once each source has stored the end of its file as its offset."""
        for name, path in files.sources.items():
            until(partial(self._is_read, name, path.stat().st_size), f"{name} read to its end")

    def _is_read(self, name: str, size: int) -> bool:
        answer = self._members[0].ask("GET", f"/connectors/{name}/offsets")
        if answer is None or not answer["offsets"]:
            return False
        return bool(answer["offsets"][0]["offset"]["position"] == size)


@contextmanager
def workers(command: list[str], bootstrap: str, directory: Path) -> Iterator[tuple[ConnectWorker, ConnectWorker]]:
    """Two workers of one group, killed at the end."""
    settings = properties(WORKER.format(bootstrap=bootstrap))
    with ConnectWorker(command, settings, directory) as one, ConnectWorker(command, settings, directory) as two:
        yield one, two


def lines(bootstrap: str) -> Counter[str]:
    """How often each line is in the stream."""
    return Counter(record.value.decode() for record in read(bootstrap, "lines") if record.value is not None)


def policies(bootstrap: str) -> set[str]:
    """The cleanup policies of the streams in which Connect keeps its state."""
    streams = ("connect-configs", "connect-offsets", "connect-status")
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in streams]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return {told.result(WAIT_S)["cleanup.policy"].value for told in admin.describe_configs(resources).values()}
