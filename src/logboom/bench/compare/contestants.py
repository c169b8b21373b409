"""The servers of a comparison, each with what it does before it acks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from logboom.bench.servers import (
    KafkaCluster,
    KafkaServer,
    LogboomNodes,
    LogboomServer,
    NatsServer,
    NothingServer,
    Server,
)


@dataclass(frozen=True)
class Contestant:
    """`server` names the process, which contestants may share; `config` is the configuration of their streams."""

    name: str
    label: str
    server: str
    fsync: str
    colour: str
    config: Mapping[str, str] = field(default_factory=dict)
    replicas: int = 1
    only: str = ""
    """The one group of cases it takes part in, where it cannot do the others."""

    @property
    def speaks_kafka(self) -> bool:
        """Whether it takes Kafka's protocol; else it is loaded through the NATS client."""
        return not self.server.startswith("nats")


_TWO_OF_THREE: Final = {"min.insync.replicas": "2"}

CONTESTANTS: Final = {
    each.name: each
    for each in (
        Contestant("logboom", "Logboom, fsync", "logboom", "fdatasync before each ack (its default)", "#1b6ca8"),
        Contestant("kafka", "Kafka, no fsync", "kafka", "none before the ack (Kafka's default)", "#e8a33d"),
        Contestant(
            "kafka-fsync",
            "Kafka, fsync",
            "kafka",
            "before each ack, batch by batch (flush.messages=1)",
            "#b5541c",
            {"flush.messages": "1"},
        ),
        Contestant("nats", "JetStream, no fsync", "nats", "every 2 minutes (JetStream's default)", "#6dbb8a"),
        Contestant(
            "nats-always", "JetStream, fsync", "nats-always", "before each ack (sync_interval: always)", "#1f6f4a"
        ),
        Contestant(
            "logboom-none",
            "Logboom, no fsync",
            "logboom",
            "none before the ack, every second after (logboom.flush=none)",
            "#8ab8dc",
            {"logboom.flush": "none"},
        ),
        Contestant(
            "logboom-rf3",
            "Logboom, 3 replicas, fsync",
            "logboom-3",
            "fdatasync of two replicas before each ack (min.insync.replicas=2)",
            "#1b6ca8",
            _TWO_OF_THREE,
            3,
        ),
        Contestant(
            "logboom-rf1",
            "Logboom, 1 replica, fsync",
            "logboom-3",
            "fdatasync before each ack; the same three brokers, one of which has the stream",
            "#8ab8dc",
        ),
        Contestant(
            "kafka-rf3",
            "Kafka, 3 replicas, no fsync",
            "kafka-3",
            "none before the ack (Kafka's default; min.insync.replicas=2)",
            "#e8a33d",
            _TWO_OF_THREE,
            3,
        ),
        Contestant("nothing", "the client alone", "nothing", "hands on, keeps nothing", "#9a9a9a", only="latency"),
    )
}
DEFAULT: Final = ("logboom", "kafka", "kafka-fsync", "nats", "nats-always", "nothing")
CLUSTERS: Final = ("logboom-rf3", "logboom-rf1", "kafka-rf3")
"""Three brokers on this machine each; the ones with one replica share theirs with those with three."""


def server_of(name: str, directory: Path, *, is_paused: bool = True) -> Server:
    """A server by its name, not started; `is_paused`: it will be paused by SIGSTOP while others are measured."""
    if name == "logboom-3":
        return LogboomNodes(directory, 3)
    if name == "kafka-3":
        return KafkaCluster(directory, 3)
    if name == "kafka":
        return KafkaServer(directory, is_paused=is_paused)
    if name.startswith("nats"):
        return NatsServer(directory, "always" if name == "nats-always" else "2m")
    if name == "nothing":
        return NothingServer(directory)
    return LogboomServer(directory)
