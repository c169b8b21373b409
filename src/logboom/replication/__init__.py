"""Row 2, pure: how the replicas of a partition stay the same, which of them are in sync, and what is committed.

Both roles are state machines in the manner of etcd's raft: the broker feeds them events and performs the effects that
they answer, in their order. A partition has one of each and feeds the one whose role it has.

`PartitionLeadership`, on the broker that leads:

    LeadershipStarted    this broker leads from now on    ->  EpochStarted, and HighWatermarkMoved if it moved
    DurableEndMoved      its own log is fsynced up to here->  HighWatermarkMoved, if all in-sync replicas have it
    FollowerFetched      a follower is fsynced up to here ->  the same, and ProposeIsr if it may join;
                                                              JoinAwaited if it may join soon
    Ticked               time has passed                  ->  ProposeIsr, without those that have stopped
    IsrChanged           the controller decided           ->  HighWatermarkMoved, or BelowMinimum
    MinimumChanged       min.insync.replicas was set      ->  HighWatermarkMoved, or BelowMinimum
    LeaseEnded, LeaseRenewed, ProposalRefused, LeadershipEnded

`PartitionFollowing`, on a broker that follows: Fetch, AppendRecords, Truncate in a loop; see `following`.

    leadership       the leader's rules and their sources
    followers        since when each follower was not caught up
    join_wait        how long the high-water mark waits for a follower that is to join
    log_starts       where the logs of followers begin
    lag              how far a copy is behind, as it knows itself: for observers, whose readers it concerns
    following        the follower's loop
    reconciliation   where two logs part, and where the follower cuts its own

One broker alone is a partition with one replica, and HW is its durable end. For a stream that asks for no sync
(`flush: none`), the broker reports the written end in its place. `broker.partition` (`leader`, `follower`) feeds and
performs both; `tests/replication` has them in a cluster of their own, under one seed.

It knows replicas by id and their durable ends by number, and time as an argument. It must not know logs, disks or
sockets.
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
