"""Who takes the messages: each with its processes, and how it is made to take those of a subject.

All of them are restarted for each measurement, and nothing else runs meanwhile.
"""

import importlib.util
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from logboom.bench import report
from logboom.bench.servers import LogboomNodes, LogboomServer, NatsCluster, NatsServer, Server, UnavailableError
from logboom.bench.servers.probe import nats_takes
from logboom.bench.streams import bench_stream
from logboom.bench.wire import BenchError

_TAKES_WITHIN_S: Final = 30.0
_SUBJECT: Final = "bench.messages"


class Contestant(ABC):
    """See the module. Life: `running`, once."""

    label: ClassVar[str]
    fsync: ClassVar[str]
    colour: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nats: NatsServer | NatsCluster

    @contextmanager
    def running(self) -> Iterator[str]:
        """The subject that it takes messages of, while it is up. Raises UnavailableError, BenchError."""
        try:
            for server in self.servers():
                server.prepare()
                server.start()
            with self._taking() as subject:
                self._await_takes(subject)
                yield subject
        finally:
            for server in reversed(self.servers()):
                server.remove()

    @abstractmethod
    def servers(self) -> list[Server]:
        """Its processes, in the order in which they start."""

    @abstractmethod
    def _taking(self) -> Any:
        """A context in which the messages of the subject that it gives are taken."""

    def load_options(self) -> tuple[str, ...]:
        """What the load client has to know of it."""
        return ("-counted=false",)

    def taken(self) -> int | None:
        """How many messages it has stored so far; None where it keeps none, or its load client asks for itself."""
        return None

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far of each kind of its processes."""
        return {
            "nats-server": sum(map(report.cpu_seconds, self.nats.pids)),
            **{name: sum(map(report.cpu_seconds, pids)) for name, pids in self._others().items()},
        }

    def _others(self) -> Mapping[str, Sequence[int]]:
        return {}

    def versions(self) -> dict[str, str]:
        """Of its programs."""
        return {server.name: server.version() for server in self.servers()}

    def settings(self) -> dict[str, dict[str, object]]:
        """What differs from the defaults of its programs."""
        return {server.name: server.settings() for server in self.servers()}

    def _await_takes(self, subject: str) -> None:
        deadline = time.monotonic() + _TAKES_WITHIN_S
        while not nats_takes(self.nats.port, subject):
            if time.monotonic() > deadline:
                raise BenchError(f"{self.label} takes no messages of {subject}")
            time.sleep(0.05)


class LogboomOnNats(Contestant):
    """A broker with a stream attached to the subject, beside a nats-server without JetStream."""

    label = "Logboom, fsync"
    fsync = "fdatasync before each ack (its default)"
    colour = "#1b6ca8"
    nodes = 1

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.nats = NatsServer(directory / "nats", None)
        settings = {"nats.servers": self.nats.url}
        self.broker: LogboomServer | LogboomNodes = (
            LogboomServer(directory / "broker", settings)
            if self.nodes == 1
            else LogboomNodes(directory / "brokers", self.nodes, settings)
        )
        self._stream = ""

    def servers(self) -> list[Server]:
        return [self.nats, self.broker]

    @contextmanager
    def _taking(self) -> Iterator[str]:
        config = {"logboom.nats.subjects": _SUBJECT}
        with bench_stream(self.broker.address, replicas=self.nodes, config=config) as stream:
            self._stream = stream
            yield _SUBJECT

    def taken(self) -> int:
        admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 0})
        partition = TopicPartition(self._stream, 0)
        try:
            asked = admin.list_offsets({partition: OffsetSpec.latest()}, request_timeout=30)  # type: ignore[no-untyped-call]
            return int(asked[partition].result(35).offset)
        except KafkaException as error:
            raise BenchError(f"the broker does not tell what it has: {error.args[0].str()}") from None

    def _others(self) -> Mapping[str, Sequence[int]]:
        return {"broker": self.broker.pids}


class LogboomReplicated(LogboomOnNats):
    """Three brokers, each of which has a copy."""

    label = "Logboom, three copies, fsync"
    fsync = "fdatasync on all three brokers before each ack"
    colour = "#7fb2d9"
    nodes = 3


class JetStream(Contestant):
    """nats-server's own streams, in files."""

    label = "JetStream R1, no fsync"
    fsync = "every 2 minutes (JetStream's default)"
    colour = "#6dbb8a"
    sync = "2m"
    replicas = 1

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.nats = NatsServer(directory, self.sync) if self.replicas == 1 else NatsCluster(directory, self.replicas)

    def servers(self) -> list[Server]:
        return [self.nats]

    def load_options(self) -> tuple[str, ...]:
        return ()

    @contextmanager
    def _taking(self) -> Iterator[str]:
        stream = "bench"
        self.nats.load("-mode", "create", "-stream", stream, "-replicas", str(self.replicas))
        yield stream


class JetStreamAlways(JetStream):
    """The same with a sync for each message."""

    label = "JetStream R1, fsync"
    fsync = "before each ack (sync_interval: always)"
    colour = "#1f6f4a"
    sync = "always"


class JetStreamReplicated(JetStream):
    """The same on three servers."""

    label = "JetStream R3, no fsync"
    fsync = "every 2 minutes, on three servers"
    colour = "#a7c957"
    replicas = 3


class _Nothing(Contestant):
    """A subscriber that does nothing, beside a nats-server without JetStream."""

    fsync = "keeps nothing"
    how: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.nats = NatsServer(directory, None)
        self._process: subprocess.Popen[bytes] | None = None

    def servers(self) -> list[Server]:
        return [self.nats]

    @contextmanager
    def _taking(self) -> Iterator[str]:
        command = [sys.executable, "-m", "logboom.bench.nats.subscriber", self.how, str(self.nats.port), _SUBJECT]
        self._process = subprocess.Popen(command)
        try:
            yield _SUBJECT
        finally:
            self._process.kill()
            self._process.wait(30)

    def _others(self) -> Mapping[str, Sequence[int]]:
        assert self._process is not None
        return {"subscriber": [self._process.pid]}


class SplitAlone(_Nothing):
    """What the broker's own reader can take."""

    label = "Python, our reader, does nothing"
    colour = "#9a9a9a"
    how = "split"


class LibraryAlone(_Nothing):
    """What nats-py can take."""

    label = "Python, nats-py, does nothing"
    colour = "#c9c9c9"
    how = "nats-py"

    @contextmanager
    def running(self) -> Iterator[str]:
        if importlib.util.find_spec("nats") is None:
            raise UnavailableError("nats-py is not installed: pip install nats-py")
        with super().running() as subject:
            yield subject


CONTESTANTS: Final[Mapping[str, type[Contestant]]] = {
    "logboom": LogboomOnNats,
    "logboom-r3": LogboomReplicated,
    "jetstream": JetStream,
    "jetstream-always": JetStreamAlways,
    "jetstream-r3": JetStreamReplicated,
    "reader": SplitAlone,
    "nats-py": LibraryAlone,
}
TAKES_PLAIN_ALONE: Final = ("nats-py",)
