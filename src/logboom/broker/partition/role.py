"""The role of this broker in one partition: leader, follower, or none.

    lead   take appends, commit, serve followers
    follow copy a leader's log; appends are refused, reads go up to this copy's own high-water mark (KIP-392)
    rest   neither: the partition is merely open, or has no leader; reads go on, and see what was committed

Any number of changes, on the loop. What ends with a leadership: queued and waiting appends are answered with
NotLeaderError, also those that are in the log and not committed, since another leader may keep them or not; the client
sends them again, and an idempotent one finds them if they were kept. Between following and leading lies the disk: a
leader's log is durable to its end, so whoever calls `lead` sees to that (`is_settled`).
"""

from typing import Protocol

from logboom.base.errors import FencedLeaderEpochError, LogboomError, NotLeaderError, UnknownLeaderEpochError
from logboom.base.ids import NO_EPOCH, NO_PARTITION_EPOCH, BrokerId, Epoch, Offset, PartitionEpoch, StreamId
from logboom.broker.partition.append_queue import AppendQueue
from logboom.broker.partition.follower import Follower
from logboom.broker.partition.leader import Leader, Leading
from logboom.broker.partition.reads import CommittedReads
from logboom.broker.partition.services import PartitionServices
from logboom.storage import PartitionLog


class Forgetful(Protocol):
    """State about the newest records that is valid for one leadership only."""

    def forget(self) -> None: ...


class Role:
    """See the module. Life: that of the partition."""

    __slots__ = (
        "_conditions",
        "_log",
        "_name",
        "_queue",
        "_reads",
        "_services",
        "_stream_id",
        "epoch",
        "failure",
        "follower",
        "leader",
        "leads",
    )

    def __init__(
        self,
        name: str,
        stream_id: StreamId,
        log: PartitionLog,
        *,
        leader: Leader,
        follower: Follower,
        queue: AppendQueue,
        reads: CommittedReads,
        conditions: Forgetful,
        services: PartitionServices,
    ) -> None:
        self.leader = leader
        self.follower = follower
        self.epoch: Epoch = NO_EPOCH
        """The leader epoch in force, of this broker's leadership or of the leader that it follows."""
        self.leads = False
        """Whether this broker leads the partition."""
        self.failure: LogboomError | None = None
        """Why this copy accepts no more writes, whoever leads; None if it does."""
        self._name = name
        self._stream_id = stream_id
        self._log = log
        self._queue = queue
        self._reads = reads
        self._conditions = conditions
        self._services = services
        queue.refusal = self._no_leader()

    def _no_leader(self) -> NotLeaderError:
        return NotLeaderError(f"this broker does not lead {self._name}")

    @property
    def is_settled(self) -> bool:
        """Whether this broker may begin to lead: no part of the log, and no truncation, is still on its way to the
        disk."""
        return self._log.durable_end == self._log.log_end_offset and not self.follower.is_cutting

    @property
    def follows(self) -> bool:
        """Whether this broker copies another one's log."""
        return self.follower.leader >= 0

    @property
    def _committed(self) -> Offset:
        """Everything below is known to be committed. Only committed records are ever deleted, so the start of the log
        counts too, even where the saved high-water mark is older: followers that have to delete as much wait for such a
        mark."""
        return max(self._reads.high_watermark, self._log.log_start_offset)

    def lead(self, leading: Leading) -> None:
        """Take appends as the leader of an epoch above every earlier one, or learn of a change in that leadership. The
        ISR has this broker in it.

        On the loop; where there is no other replica, also on the thread that opened the log, before anything else has
        the partition. Does not wait for the disk: where the epoch is not saved yet, the flush of its first batch saves
        it before it writes that batch.
        """
        if self.leads and leading.epoch == self.epoch:
            self.leader.isr_changed(leading)
            return
        assert not self.leads, "a leadership ends before the next one begins"
        assert self.is_settled, "a leader's log is durable to its end"
        mark = max(self._committed, self.follower.high_watermark)
        self.follower.stop()
        self._conditions.forget()  # another leader may have written meanwhile
        self.epoch, self.leads = leading.epoch, True
        services = self._services
        self.leader.start(
            leading,
            self._log.durable_end,
            mark,
            lag_max_s=services.config.now.replica_lag_max_ms / 1_000,
            now_s=services.clock.monotonic_s(),
        )
        self._queue.refusal = self.failure
        services.leadership_changes.announce(self._stream_id)

    def follow(
        self,
        leader: BrokerId,
        epoch: Epoch,
        partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH,
        *,
        in_sync: bool = False,
        observes: bool = False,
    ) -> None:
        """Copy the log of `leader` from now on, or learn of another state of the partition. `in_sync`: whether this
        copy is in the ISR; `observes`: whether it is for readers alone."""
        self.follower.freshness.observes = observes
        if self.follows and (self.follower.leader, self.epoch) == (leader, epoch):
            self.follower.partition_changed(partition_epoch, in_sync=in_sync)
            return
        self.rest()
        self.epoch = epoch
        if self.failure is None:
            self.follower.start(leader, epoch, self._committed, partition_epoch)
        self.leader.watchers.call()

    def rest(self) -> None:
        """Neither lead nor follow. Answers that are still in flight are ignored."""
        if self.leads:
            self.leads = False
            self._services.leadership_changes.announce(self._stream_id)
            self._queue.close(self._no_leader())
            self._queue.refusal = self.failure or self._no_leader()
            self.leader.end()
            self.leader.watchers.call()
        else:
            self.follower.stop()

    def fail(self, failure: LogboomError) -> None:
        """Take no more writes, for good. The first reason stays."""
        if self.failure is None:
            self.failure = failure
        self._queue.refusal = self.failure
        self.follower.stop()

    def local_end_moved(self, end: Offset) -> None:
        """This copy is as safe as the stream asks for below `end`."""
        if self.leads:
            self.leader.local_end_moved(end)
        elif self.follows:
            self.follower.local_end_moved(end)

    def check_leads(self) -> None:
        """Raises NotLeaderError if another broker has to be asked, or the failure of this copy if it has failed."""
        refusal = self.failure or (None if self.leads else self._no_leader())
        if refusal is not None:
            raise refusal.with_traceback(None)

    def check_epoch(self, epoch: int) -> None:
        """Fence a client whose leader epoch is older or newer than this one (KIP-320); -1 means that it has none."""
        current = self.epoch
        if epoch in (NO_EPOCH, current):
            return
        kind = FencedLeaderEpochError if epoch < current else UnknownLeaderEpochError
        raise kind(f"{self._name} is at leader epoch {current}, the request at {epoch}")
