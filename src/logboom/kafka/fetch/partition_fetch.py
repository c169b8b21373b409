"""One partition of a fetch, and the byte budget that all partitions of one fetch share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast
from uuid import UUID

from logboom.base.errors import LogboomError, NotLeaderError
from logboom.base.ids import NO_BROKER, NO_EPOCH, BrokerId
from logboom.base.ports import Bytes
from logboom.broker.broker import Broker
from logboom.broker.partition.replica import Partition
from logboom.kafka.admin.lookup import find_partition
from logboom.kafka.fetch.sessions import Position
from logboom.storage import Segment

NO_RECORDS: Final = b""


@dataclass(slots=True)
class PartitionFetch:
    """One partition of a fetch, and what was read of it."""

    position: Position
    partition: Partition | None
    """None with an error."""
    error: LogboomError | None
    leader_only: bool = False
    """Whether the consumer is too old to read from followers."""
    read_replica: BrokerId = NO_BROKER
    """Where the consumer should read instead; then nothing is read here."""
    records: Bytes = NO_RECORDS
    high_watermark: int = -1
    log_start_offset: int = -1
    last_segment: Segment | None = None
    """The segment that was written to when the partition was read, if the fetch waits for more than one byte."""
    last_segment_bytes: int = 0
    """Its size at that time: growth since then is new."""
    failure: LogboomError | None = None
    """As of that time: why the partition accepts no more writes, if it does not, and whether this broker leads it."""
    led: bool = False

    @property
    def has_records(self) -> bool:
        return len(self.records) > 0

    @property
    def failed(self) -> bool:
        return self.error is not None

    @property
    def redirected(self) -> bool:
        return self.read_replica != NO_BROKER

    def fail(self, error: LogboomError) -> None:
        """Answer for this partition with an error."""
        self.error = error
        self.read_replica = NO_BROKER
        self.records = NO_RECORDS
        self.high_watermark = self.log_start_offset = -1

    def prepare(self, *, note_size: bool) -> bool:
        """Note the state of the partition; returns False if there is nothing to read.

        Most partitions of a large fetch are at their end every time; that is found out without asking the log.
        """
        self.records = NO_RECORDS
        partition, position = self.partition, self.position
        if partition is None or self.error is not None:
            return False
        if self.leader_only and not partition.leads:
            self.fail(NotLeaderError(f"this broker does not lead {partition}"))
            return False
        role = partition.role
        if not role.leads and (stale := role.follower.freshness.refusal(partition.config)) is not None:
            self.fail(stale)
            return False
        if position.leader_epoch not in (NO_EPOCH, partition.leader_epoch):
            try:
                partition.check_leader_epoch(position.leader_epoch)
            except LogboomError as error:
                self.fail(error)
                return False
        self.high_watermark = high_watermark = partition.high_watermark
        self.log_start_offset = partition.log_start_offset
        if position.offset >= high_watermark and not self._may_answer(partition):
            # A log that takes no more writes, too: others lead then, and have given offsets that it has not.
            self.fail(role.failure or NotLeaderError(f"this broker does not know for certain who leads {partition}"))
            return False
        self.failure, self.led = role.failure, role.leads
        if note_size:
            self.last_segment = last = partition.log.segments[-1]
            self.last_segment_bytes = last.size_bytes
        return (role.failure is not None or position.offset != high_watermark) and not self.redirected

    def _may_answer(self, partition: Partition) -> bool:
        """Whether this broker may answer that it has nothing at the position. Committed records are served in any
        case."""
        leader = partition.role.leader
        if not leader.has_lease:
            return False  # others may lead by now, and the consumer would wait here without end
        if self.position.offset <= partition.log_end_offset:
            return True
        # Out of range, unless another leader has given it. One who names the epoch means the leader that there is.
        return leader.is_certain if partition.leads else self.position.leader_epoch != NO_EPOCH

    def grown_bytes(self) -> int | None:
        """How many bytes were written since `prepare`; None where that is not known, since a segment has ended.

        The size of the whole log would not tell: retention and compaction make it smaller meanwhile.
        """
        assert self.partition is not None
        last = self.partition.log.segments[-1]
        return last.size_bytes - self.last_segment_bytes if last is self.last_segment else None


def partition_fetch(broker: Broker, position: Position, *, leader_only: bool) -> PartitionFetch:
    """The fetch of one position; one that cannot be read carries the error."""
    try:
        partition = find_partition(broker, cast("str | UUID | None", position.topic), position.index)
    except LogboomError as error:
        return PartitionFetch(position, None, error)
    return PartitionFetch(position, partition, None, leader_only)


class ByteBudget:
    """The bytes of one pass over the partitions: whole batches up to a limit, the very first batch always (KIP-74)."""

    __slots__ = ("is_empty", "limit_bytes", "taken_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.taken_bytes = 0
        self.is_empty = True
        """Whether nothing was taken, so that the next batch is returned whatever its size."""

    def allowed(self, fetch: PartitionFetch) -> int:
        """How many bytes this partition may bring."""
        return max(0, min(fetch.position.max_bytes, self.limit_bytes - self.taken_bytes))

    def take(self, fetch: PartitionFetch, records: Bytes, allowed: int) -> None:
        """Keep what was read, unless it is a batch that is too large and not the first."""
        size = len(records)
        if size and (self.is_empty or size <= allowed):
            self.is_empty = False
            self.taken_bytes += size
            fetch.records = records
