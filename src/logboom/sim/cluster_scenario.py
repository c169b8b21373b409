"""What a run of a cluster consists of: brokers, clients, streams, and what may go wrong."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from logboom.base.units import DAY_MS, KIB
from logboom.sim.administration import TASKS
from logboom.sim.client import TopicPartition
from logboom.sim.cluster_faults import DISK_LOSSES, NETWORK_FAULTS, NODE_FAULTS
from logboom.sim.late_requests import LATE_FAULTS
from logboom.sim.lease_flaps import LEASE_FAULTS
from logboom.sim.members import SESSION_MS
from logboom.sim.nats_attached import FEED, SHARED
from logboom.sim.nats_faults import NATS_FAULTS
from logboom.sim.nats_members import MEMBERS_FAULTS
from logboom.sim.nats_publishing import KINDS, SHARED_KINDS
from logboom.sim.older_copies import OLDER_COPY_FAULTS
from logboom.sim.schedule import Schedule
from logboom.sim.tables import TABLE_CONFIG

TRIMMED: Final = TopicPartition("trimmed", 0)
AGED: Final = TopicPartition("aged", 0)
TABLE: Final = TopicPartition("table", 0)
COUNTS: Final = TopicPartition("counts", 0)
BESIDE_CONFIG: Final[Mapping[TopicPartition, Mapping[str, str]]] = {
    TRIMMED: {"segment.bytes": "16384"},
    AGED: {"segment.bytes": "16384", "retention.bytes": "32768"},
    TABLE: TABLE_CONFIG,
    COUNTS: TABLE_CONFIG,
}
FAR_CLOCKS_CONFIG: Final = {"message.timestamp.type": "LogAppendTime", "retention.ms": str(7 * DAY_MS)}
"""Of all streams where wall clocks are days off: their records are stamped and deleted by them."""
OBSERVER: Final = "observer"
BESIDE: Final = (*(one.stream for one in BESIDE_CONFIG), FEED, OBSERVER, SHARED)
"""What there may be beside the stream of which all records stay: one of which clients delete records, one of which
brokers do, a table, counters with expected versions, one that is attached to NATS; a broker that only observes; and
streams that share what is published on NATS."""
_QUICK: Final = ("checkpoint_interval_s", "leader_rebalance_interval_ms", "retention_check_interval_s", "cleaner")
"""Settings of brokers that have intervals much shorter than those with which they are shipped."""
_LEASES_CHANCE: Final = 0.2
_LATE_CHANCE: Final = 0.2
_OLDER_COPY_CHANCE: Final = 0.2
_FAR_CLOCKS_CHANCE: Final = 0.2


@dataclass(frozen=True, slots=True)
class ClusterScenario:
    """What a run consists of; the seed decides all else."""

    nodes: int = 3
    observers: int = 0
    """Nodes beside these that only observe; each partition has so many observers, and each of these a reader."""
    beside: tuple[str, ...] | None = None
    """Which of BESIDE there are; None for those that the seed chooses."""
    troubled_s: float = 10.0
    """For how long, in simulated seconds, things go wrong."""
    partitions: int = 3
    producers: int = 2
    """Idempotent ones, with acks=all."""
    in_flight_max: tuple[int, ...] = (1, 5)
    """How many requests each of them may have under way: the seed chooses one of these. With 5, every other one keeps
    to the rules of Java's client, the others to librdkafka's (`pipelining`)."""
    plain_producers: int = 2
    """Producers that send each batch once; every other one of them asks for no acks (acks=0), the others for acks=1."""
    consumers: int = 1
    members: int = 2
    """Consumers that share the partitions as one group."""
    producer_pause_max_s: float = 0.2
    trouble_pause_max_s: float = 6.0
    """Of each node, and of the network, between two faults."""
    node_faults: tuple[str, ...] = tuple(NODE_FAULTS)
    network_faults: tuple[str, ...] = tuple(NETWORK_FAULTS)
    disk_losses: tuple[str, ...] = tuple(DISK_LOSSES)
    """What happens to the disk of one broker, which the seed chooses."""
    nats_servers: tuple[int, ...] = (1, 3)
    """How many nats-servers there are: the seed chooses one of these."""
    nats_faults: tuple[str, ...] = tuple(NATS_FAULTS)
    """Where a stream is attached to NATS; some of them only where there are several servers."""
    lease_faults: tuple[str, ...] = tuple(LEASE_FAULTS)
    """What happens to leases while streams are made."""
    lease_chance: float = _LEASES_CHANCE
    """Of that being part of a run: it costs as much as all else, and the other seeds mean what they mean without it."""
    late_faults: tuple[str, ...] = tuple(LATE_FAULTS)
    """What happens to requests to the controller."""
    late_chance: float = _LATE_CHANCE
    """Of that being part of a run, as with leases."""
    older_copy_faults: tuple[str, ...] = tuple(OLDER_COPY_FAULTS)
    """What happens to a disk of which there is a copy, once all else is healed."""
    older_copy_chance: float = _OLDER_COPY_CHANCE
    """Of that being part of a run, as with leases."""
    far_clocks_chance: float = _FAR_CLOCKS_CHANCE
    """Of a run in which wall clocks may be days off. Ids of NATS messages are not remembered for that long, so there is
    no such run with NATS."""
    members_faults: tuple[str, ...] = tuple(MEMBERS_FAULTS)
    """Where streams share what is published on NATS."""
    publishers: tuple[str, ...] = KINDS
    """Each of these kinds publishes on NATS, where a stream is attached to it."""
    shared_publishers: tuple[str, ...] = SHARED_KINDS
    """The same where streams share their subjects."""
    keeps_all: bool = False
    """Whether nothing at all may be lost, as where leaders change that are alive and in touch."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """What is done to the cluster meanwhile; with any, one more broker is there to be added."""
    replica_lags_ms: tuple[int, ...] = (3_000, 30_000)
    """Of which the seed chooses one: short, so that who is slow leaves the ISR and comes back, or as it is by default,
    so that whoever holds up a partition holds it up for long enough to be noticed."""
    stretch: float = 1.0
    """How many times as long as usual the pauses of clients are, and faults last at most; see `stretched`."""
    rest_chance: float = 0.3
    """Of a run in which faults are rare, and clients go on for a while once all is healed: much can only be waited for
    while nothing is wrong."""
    schedule: Schedule | None = None
    """What goes wrong and when; None for what the seed plans of these faults."""
    stream_config: Mapping[str, str] = field(default_factory=lambda: {"min.insync.replicas": "2"})
    broker_config: Mapping[str, Any] = field(
        default_factory=lambda: {
            "stream_defaults": {"segment_bytes": 64 * KIB},
            "checkpoint_interval_s": 1.0,
            "leader_rebalance_interval_ms": 5_000,
            "retention_check_interval_s": 0.5,
            "cleaner": {"backoff_ms": 300},
            "groups": {
                "session_timeout_min_ms": SESSION_MS,
                "initial_rebalance_delay_ms": 100,
                "offsets_partitions": 4,
            },
        }
    )

    def stretched(self, factor: float) -> "ClusterScenario":
        """The same, in which clients pause, and faults are apart and last, up to `factor` times as long.

        An hour then costs a fifth of the processor time, and brokers have the intervals with which they are shipped, so
        that it comes to what happens after minutes. `factor` 1 changes nothing.
        """
        if factor == 1:
            return self
        return replace(
            self,
            stretch=factor,
            producer_pause_max_s=self.producer_pause_max_s * factor,
            trouble_pause_max_s=self.trouble_pause_max_s * factor,
            broker_config={name: value for name, value in self.broker_config.items() if name not in _QUICK},
        )

    def limited_to(self, names: Collection[str]) -> "ClusterScenario":
        """The same, in which nothing else goes wrong or is done; what is asked for by name is part of each run."""
        return replace(
            self,
            lease_faults=tuple(name for name in LEASE_FAULTS if name in names),
            lease_chance=self.lease_chance if {*CLUSTER_FAULTS} <= {*names} else 1.0,
            late_faults=tuple(name for name in LATE_FAULTS if name in names),
            late_chance=self.late_chance if {*CLUSTER_FAULTS} <= {*names} else 1.0,
            older_copy_faults=tuple(name for name in OLDER_COPY_FAULTS if name in names),
            older_copy_chance=self.older_copy_chance if {*CLUSTER_FAULTS} <= {*names} else 1.0,
            node_faults=tuple(name for name in NODE_FAULTS if name in names),
            network_faults=tuple(name for name in NETWORK_FAULTS if name in names),
            nats_faults=tuple(name for name in NATS_FAULTS if name in names),
            members_faults=tuple(name for name in MEMBERS_FAULTS if name in names),
            disk_losses=tuple(name for name in DISK_LOSSES if name in names),
            tasks=tuple(name for name in TASKS if name in names),
        )


CLUSTER_FAULTS: Final = (
    *NODE_FAULTS,
    *NETWORK_FAULTS,
    *NATS_FAULTS,
    *MEMBERS_FAULTS,
    *DISK_LOSSES,
    *TASKS,
    *LEASE_FAULTS,
    *LATE_FAULTS,
    *OLDER_COPY_FAULTS,
)
"""Everything that may go wrong with a cluster, or be done to it, by name."""
