"""This broker's leadership of one partition: the replication core's effects, performed.

Knows the core, the log's epochs and what an effect is for: the append queue's acks, the ceiling of reads, watchers.
Every change goes one way: event -> `PartitionLeadership.step` -> effects, in order. On the loop, but for `start`.
"""

from typing import Protocol

from logboom.base.errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    UnknownLeaderEpochError,
)
from logboom.base.ids import NO_EPOCH, BrokerId, Epoch, Offset
from logboom.broker.partition.append_queue import AppendQueue
from logboom.broker.partition.waiters import Watchers
from logboom.replication import (
    BelowMinimum,
    DurableEndMoved,
    Effect,
    EpochStarted,
    HighWatermarkMoved,
    LeadershipStarted,
    MinimumChanged,
    PartitionLeadership,
)


class LeaderEpochs(Protocol):
    """Where a log keeps its leader epochs: `storage.PartitionLog.epochs`."""

    def begin(self, epoch: Epoch, offset: Offset) -> bool: ...


class Readable(Protocol):
    """What may be read up to the high-water mark."""

    high_watermark: Offset


class Leader:
    """See the module. Life: that of the partition; each `start` begins a leadership."""

    __slots__ = ("_broker_id", "_core", "_epochs", "_name", "_queue", "_readable", "watchers")

    def __init__(
        self,
        name: str,
        broker_id: BrokerId,
        min_insync_replicas: int,
        epochs: LeaderEpochs,
        queue: AppendQueue,
        readable: Readable,
    ) -> None:
        self.watchers = Watchers()
        """Called whenever the high-water mark moved; the partition calls them on other news."""
        self._name = name
        self._broker_id = broker_id
        self._epochs = epochs
        self._queue = queue
        self._readable = readable
        self._core = PartitionLeadership(broker_id, min_insync_replicas=min_insync_replicas)

    @property
    def epoch(self) -> Epoch:
        """The leader epoch in force."""
        return self._core.epoch

    def start(self, epoch: Epoch, isr: frozenset[BrokerId], log_end: Offset) -> None:
        """Begin a leadership of a log that is durable up to `log_end`. What could be read before can be read still."""
        self._perform(self._core.step(LeadershipStarted(epoch, isr, log_end, self._readable.high_watermark)))

    def local_end_moved(self, end: Offset) -> None:
        """This broker's own copy is as safe as the stream asks for below `end`."""
        self._queue.local_end_moved(end)
        self._perform(self._core.step(DurableEndMoved(self._broker_id, end)))

    def minimum_changed(self, min_insync_replicas: int) -> None:
        """`min.insync.replicas` of the stream has this value."""
        self._perform(self._core.step(MinimumChanged(min_insync_replicas)))

    def check_epoch(self, epoch: int) -> None:
        """Fence a client whose knowledge of the leadership is older or newer (KIP-320); -1 is no knowledge."""
        current = self._core.epoch
        if epoch in (NO_EPOCH, current):
            return
        kind = FencedLeaderEpochError if epoch < current else UnknownLeaderEpochError
        raise kind(f"{self._name} is at leader epoch {current}, the request at {epoch}")

    def _perform(self, effects: tuple[Effect, ...]) -> None:
        self._queue.commit_refusal = None if self._core.has_minimum else self._not_enough_replicas()
        for effect in effects:
            match effect:
                case HighWatermarkMoved(offset):
                    # Readable first: an ack may be followed at once by a fetch of what it acked.
                    self._readable.high_watermark = offset
                    self._queue.committed(offset)
                    self.watchers.call()
                case EpochStarted(epoch, start_offset):
                    self._epochs.begin(epoch, start_offset)
                    self._queue.leader_epoch = epoch
                case BelowMinimum():
                    # The records are in the log and may be committed later, which the error of Kafka says too.
                    self._queue.fail_uncommitted(
                        NotEnoughReplicasAfterAppendError(
                            f"{self._name} fell below min.insync.replicas before the records were committed; "
                            "they may yet be"
                        )
                    )

    def _not_enough_replicas(self) -> NotEnoughReplicasError:
        there, wanted = len(self._core.isr), self._core.min_insync_replicas
        return NotEnoughReplicasError(
            f"{self._name} has {there} in-sync replica, min.insync.replicas asks for {wanted}"
        )
