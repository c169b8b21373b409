"""The servers that are measured side by side, each a separate process: Logboom, Apache Kafka, nats-server.

Knows command lines, ports and process ids; must not know what is measured. A server that cannot be had on this machine
raises `UnavailableError` with the reason, and the run goes on without it.
"""

from logboom.bench.servers.cpu_quota import cpu_quotas
from logboom.bench.servers.kafka import KafkaCluster, KafkaServer
from logboom.bench.servers.logboom import LogboomServer
from logboom.bench.servers.nats import NatsServer
from logboom.bench.servers.nats_cluster import NatsCluster
from logboom.bench.servers.nodes import LogboomNodes
from logboom.bench.servers.nothing import NothingServer
from logboom.bench.servers.process import Server, UnavailableError, free_port

__all__ = [
    "KafkaCluster",
    "KafkaServer",
    "LogboomNodes",
    "LogboomServer",
    "NatsCluster",
    "NatsServer",
    "NothingServer",
    "Server",
    "UnavailableError",
    "cpu_quotas",
    "free_port",
]
