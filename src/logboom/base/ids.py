"""Types for the numbers and names that must never be swapped for one another."""

from typing import NewType
from uuid import UUID

Offset = NewType("Offset", int)
"""Position of a record in a partition, counted from 0."""

Epoch = NewType("Epoch", int)
"""Leader epoch: the count of leaderships of a partition; -1 where unknown."""

BrokerId = NewType("BrokerId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
"""Counts the registrations of brokers in a cluster; a request under an older one comes from an earlier process."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Counts the changes of a partition's replicas, ISR and leader; -1 where unknown."""

DirectoryId = NewType("DirectoryId", str)
"""The identity of one data directory: a broker that comes back with another disk has another one."""

PartitionIndex = NewType("PartitionIndex", int)
ProducerId = NewType("ProducerId", int)
"""Id of an idempotent producer; -1 for a producer that is not idempotent."""

ProducerEpoch = NewType("ProducerEpoch", int)
StreamName = NewType("StreamName", str)
StreamId = NewType("StreamId", UUID)
"""The identity of a stream for life: a stream deleted and created again under its name has another one."""

NO_PRODUCER = ProducerId(-1)
NO_EPOCH = Epoch(-1)
NO_PARTITION_EPOCH = PartitionEpoch(-1)
NO_BROKER = BrokerId(-1)
