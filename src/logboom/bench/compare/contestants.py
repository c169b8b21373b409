"""The servers of a comparison, each with what it does before it acks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from logboom.bench.servers import KafkaServer, LogboomServer, NatsServer, NothingServer, Server


@dataclass(frozen=True)
class Contestant:
    """`server` names the process, which contestants may share; `config` is the configuration of their streams."""

    name: str
    label: str
    server: str
    fsync: str
    colour: str
    config: Mapping[str, str] = field(default_factory=dict)
    only: str = ""
    """The one group of cases it takes part in, where it cannot do the others."""

    @property
    def speaks_kafka(self) -> bool:
        """Whether it takes Kafka's protocol; else it is loaded through the NATS client."""
        return not self.server.startswith("nats")


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
        Contestant("nothing", "the client alone", "nothing", "hands on, keeps nothing", "#9a9a9a", only="latency"),
    )
}
DEFAULT: Final = ("logboom", "kafka", "kafka-fsync", "nats", "nats-always", "nothing")


def server_of(name: str, directory: Path, *, is_paused: bool = True) -> Server:
    """A server by its name, not started; `is_paused`: it will be paused by SIGSTOP while others are measured."""
    if name == "kafka":
        return KafkaServer(directory, is_paused=is_paused)
    if name.startswith("nats"):
        return NatsServer(directory, "always" if name == "nats-always" else "2m")
    if name == "nothing":
        return NothingServer(directory)
    return LogboomServer(directory)
