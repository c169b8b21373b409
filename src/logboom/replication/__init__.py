"""Row 2, pure: which replicas of a partition are in sync, and how far the high-water mark (HW) may go.

`PartitionLeadership` is the state of one partition on the broker that leads it. It is a state machine in the manner of
etcd's raft: the broker feeds it events and performs the effects that it answers, in their order.

    effects = leadership.step(event)

    LeadershipStarted    this broker leads from now on    ->  EpochStarted, and HighWatermarkMoved if that is news
    DurableEndMoved      a replica has fsynced up to here ->  HighWatermarkMoved, if all in-sync replicas have
    IsrChanged           the controller decided           ->  HighWatermarkMoved, or BelowMinimum
    MinimumChanged       min.insync.replicas was set      ->  HighWatermarkMoved, or BelowMinimum

A leader's own flush is such an event, too: one broker alone is a partition with one replica, and HW is its durable end.
For a stream that asks for no sync (`flush: none`), the broker reports the written end in its place.

It knows replicas by id and their durable ends by number. It must not know logs, disks, sockets or time. The rules and
their sources stand in `leadership`.
"""

from logboom.replication.leadership import (
    BelowMinimum,
    DurableEndMoved,
    Effect,
    EpochStarted,
    Event,
    HighWatermarkMoved,
    IsrChanged,
    LeadershipStarted,
    MinimumChanged,
    PartitionLeadership,
)

__all__ = [
    "BelowMinimum",
    "DurableEndMoved",
    "Effect",
    "EpochStarted",
    "Event",
    "HighWatermarkMoved",
    "IsrChanged",
    "LeadershipStarted",
    "MinimumChanged",
    "PartitionLeadership",
]
