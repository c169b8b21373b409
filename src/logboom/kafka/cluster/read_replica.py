"""Which copy a consumer should read from: a replica in its own rack (KIP-392), or an observer.

The rule for replicas is that of Kafka's RackAwareReplicaSelector: one in the consumer's rack that is in sync, unless
the leader is there too. Observers qualify if they have the offset and are not further behind than their stream allows;
they come before replicas, since they exist only for reading. With `logboom.observer.reads=preferred` consumers are sent
to observers in any rack, to each observer in turn.

Only leaders choose. The consumer goes to the copy that it is told, comes back when that copy refuses, and asks again
every few minutes. A consumer that comes back from an observer at once is served by the leader for a while: perhaps it
cannot reach the observer, or its client ignores the redirection, and it would be sent back and forth without getting a
record.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final

from logboom.base.ids import NO_BROKER, BrokerId
from logboom.metadata import ObserverReads

if TYPE_CHECKING:
    from logboom.base.ports import Clock
    from logboom.broker.partition.replica import Partition
    from logboom.broker.partition.replication_port import ReplicaKey
    from logboom.kafka.cluster.view import ClusterView
    from logboom.kafka.metrics import KafkaMetrics
    from logboom.metadata.assignment import Assignment

_STAYS_S: Final = 60.0
"""Clients ask the leader again after five minutes; one that is back sooner was refused."""


class ReadReplicas:
    """See the module. One for a server."""

    def __init__(self, cluster: ClusterView, clock: Clock, metrics: KafkaMetrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._clock = clock
        self._turn = 0
        self._sent: dict[Hashable, dict[ReplicaKey, float]] = {}
        """When each connection was sent to an observer, by partition."""

    def choose(self, partition: Partition, rack: str, offset: int, connection: Hashable) -> BrokerId:
        """The copy for a consumer in `rack`, which may be empty, that has got up to `offset`.

        NO_BROKER where it reads best from the leader, where this broker is not that, and for an offset that is not
        committed or no longer there: every member of the ISR has all others, and what they refuse would be sent to them
        again without end.
        """
        if not partition.leads or not partition.log_start_offset <= offset <= partition.high_watermark:
            return NO_BROKER
        assignment = self._cluster.assignment(partition.stream, partition.index)
        if not rack and not assignment.observers:
            return NO_BROKER
        if assignment.observers and self._may_observe(partition, connection):
            observers = self._observers(partition, assignment, rack, offset)
            if observers:
                self._turn += 1
                self._metrics.sent_to_observers += 1
                self._sent.setdefault(connection, {})[_key(partition)] = self._clock.monotonic_s()
                return observers[self._turn % len(observers)]
        replica = self._replica(partition, assignment, rack) if rack else NO_BROKER
        self._metrics.sent_to_replicas += replica != NO_BROKER
        return replica

    def connection_closed(self, connection: Hashable) -> None:
        """Forget a closed connection."""
        self._sent.pop(connection, None)

    def _may_observe(self, partition: Partition, connection: Hashable) -> bool:
        sent_s = self._sent.get(connection, {}).get(_key(partition))
        return sent_s is None or self._clock.monotonic_s() - sent_s > _STAYS_S

    def _observers(self, partition: Partition, assignment: Assignment, rack: str, offset: int) -> Sequence[BrokerId]:
        """The observers for such a consumer: any of them will do."""
        nodes = self._cluster.nodes()
        near = [one for one in assignment.observers if rack and one in nodes and nodes[one].rack == rack]
        fresh = [one for one in near if self._is_fresh(partition, one, offset)]
        if partition.config.observer_reads is ObserverReads.RACK:
            leader = nodes.get(assignment.leader)
            return () if leader is not None and leader.rack == rack else fresh
        if fresh or (rack and self._replica(partition, assignment, rack) != NO_BROKER):
            return fresh
        return [one for one in assignment.observers if one in nodes and self._is_fresh(partition, one, offset)]

    def _is_fresh(self, partition: Partition, observer: BrokerId, offset: int) -> bool:
        leader, config = partition.role.leader, partition.config
        lag = leader.observer_lag(observer, self._clock.monotonic_s())
        if lag is None or (leader.follower_end(observer) or 0) < offset:
            return False
        return not lag.exceeds(records=config.observer_max_lag_records, seconds=config.observer_max_lag_ms / 1_000)

    def _replica(self, partition: Partition, assignment: Assignment, rack: str) -> BrokerId:
        """The in-sync replica in a rack that the leader is not in; of several, one that has most."""
        nodes = self._cluster.nodes()
        near = [one for one in assignment.isr if one in nodes and nodes[one].rack == rack]
        if not near or assignment.leader in near:
            return NO_BROKER
        return max(near, key=lambda one: partition.role.leader.follower_end(one) or 0)


def _key(partition: Partition) -> ReplicaKey:
    return partition.stream.id, partition.index
