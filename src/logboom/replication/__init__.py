"""Row 2, pure: who is in sync and how far the high-water mark may go.

It knows replicas by id and their durable ends by number. It must not know logs, disks, sockets or time: the shell tells
it what happened and performs what it answers, in order.
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
