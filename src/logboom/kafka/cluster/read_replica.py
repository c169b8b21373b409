"""Which replica a consumer should read from: one in its own rack, where there is one that is in sync (KIP-392).

The rule is that of Kafka's RackAwareReplicaSelector. Only leaders choose; the consumer goes to the replica that it is
told, comes back when that refuses, and asks again every few minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logboom.base.ids import NO_BROKER, BrokerId

if TYPE_CHECKING:
    from logboom.broker.partition.replica import Partition
    from logboom.kafka.cluster.view import ClusterView


def preferred_read_replica(cluster: ClusterView, partition: Partition, rack: str, offset: int) -> BrokerId:
    """The replica for a consumer in `rack` that has got up to `offset`.

    NO_BROKER where it reads best from the leader, where this broker is not that, and for an offset that is not
    committed or no longer there: every member of the ISR has all others, and what they refuse would be sent to them
    again without end.
    """
    if not partition.leads or not partition.log_start_offset <= offset <= partition.high_watermark:
        return NO_BROKER
    nodes, assignment = cluster.nodes(), cluster.assignment(partition.stream, partition.index)
    near = [one for one in assignment.isr if one in nodes and nodes[one].rack == rack]
    if not near or assignment.leader in near:
        return NO_BROKER
    return max(near, key=lambda one: partition.role.leader.follower_end(one) or 0)
