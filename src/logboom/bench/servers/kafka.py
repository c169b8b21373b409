"""Apache Kafka from Maven: KRaft nodes, with the options of its own start scripts and server.properties."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from logboom.bench.servers.group import ServerGroup
from logboom.bench.servers.jars import KAFKA_VERSION, java, java_version, kafka_jars
from logboom.bench.servers.probe import kafka_answers, kafka_brokers
from logboom.bench.servers.process import Server, UnavailableError, free_port

HEAP: Final = ("-Xmx1G", "-Xms1G")
JVM_OPTIONS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
"""What bin/kafka-run-class.sh and bin/kafka-server-start.sh pass."""
QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"

_OURS: Final = {
    # Streams of a finished case must not fill the disk for the next ones.
    "log.segment.delete.delay.ms": "1000",
}
_PAUSED: Final = {
    # A paused node must not be fenced by its own controller when it resumes. Not for a node that will be started
    # again after kill -9: the controller rejects the new process until the old one's session has expired.
    "broker.session.timeout.ms": "86400000",
}
_SHIPPED: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
    "group.initial.rebalance.delay.ms": "0",
}


class KafkaServer(Server):
    """One node that is broker and controller."""

    name = "kafka"

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        is_paused: bool = True,
        tells: Sequence[str] = (),
        controller_port: int | None = None,
    ) -> None:
        """`properties` beside those that are its defaults; `tells`: loggers that say more than errors."""
        super().__init__(directory)
        self._ours = {**_OURS, **(_PAUSED if is_paused else {}), **(properties or {})}
        self._logging = tuple(f"-Dorg.slf4j.simpleLogger.log.{name}=info" for name in tells)
        self._controller_port = controller_port or free_port()
        self._properties = self.directory / "server.properties"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def version(self) -> str:
        return f"{KAFKA_VERSION}, {java_version()}"

    def settings(self) -> dict[str, object]:
        return {**self._ours, "heap": " ".join(HEAP), "logging": "errors only"}

    def prepare(self) -> None:
        listeners = f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self._controller_port}"
        properties = {
            **_SHIPPED,
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "log.dirs": str(self.data),
            **self._ours,
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        formatting = ["format", "-t", "bG9nYm9vbS1iZW5jaA", "-c", str(self._properties)]
        done = subprocess.run(
            java_command("kafka.tools.StorageTool", *formatting, options=("-Xmx256m",)),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise UnavailableError(f"Kafka's storage could not be formatted: {(done.stdout + done.stderr)[-300:]}")

    def command(self) -> list[str]:
        return java_command("kafka.Kafka", str(self._properties), options=(*HEAP, *JVM_OPTIONS, *self._logging))

    def answers(self) -> bool:
        return kafka_answers(self.port)


_CLUSTER: Final = {
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}
_PAUSED_TOGETHER: Final = {
    # All controllers are paused and go on at the same moment: that is no reason to elect another one.
    "controller.quorum.fetch.timeout.ms": "86400000",
}


class KafkaCluster(ServerGroup[KafkaServer]):
    """Nodes that are brokers and controllers all."""

    name = "kafka"

    def __init__(self, directory: Path, nodes: int) -> None:
        ports = [free_port() for _ in range(nodes)]
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1))
        shared = {**_CLUSTER, **_PAUSED_TOGETHER, "controller.quorum.voters": voters}
        made = [
            KafkaServer(directory / f"node-{number}", {**shared, "node.id": str(number)}, controller_port=port)
            for number, port in enumerate(ports, 1)
        ]
        super().__init__(directory, made)

    @property
    def address(self) -> str:
        """All nodes, for clients to begin with."""
        return ",".join(node.address for node in self._nodes)

    def answers(self) -> bool:
        return all(kafka_brokers(node.port) == len(self._nodes) for node in self._nodes)


def java_command(main_class: str, *arguments: str, options: tuple[str, ...]) -> list[str]:
    """How a program of Kafka's distribution is run."""
    return [java(), *options, QUIET, "-cp", f"{kafka_jars()}/*", main_class, *arguments]
