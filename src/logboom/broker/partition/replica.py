"""One partition of this broker: a log, this broker's role in it, and everything that waits for either.

The way of an append is straight: `append_run` -> AppendQueue -> AppendGathering -> (end of the turn) `drain` -> flusher
-> `flushed` -> Leader -> high-water mark -> acks and watchers. Everything here runs on the loop. Knows nothing of
requests and connections.

Life: made around an open log, in no role; `role` leads, follows or rests as the committed metadata says, any number of
times, until the partition goes offline (reads go on) or is closed for good.
"""

from collections.abc import Callable, Sequence
from functools import partial
from zlib import crc32

from logboom.base.errors import DiskFullError, LogboomError, RetriableStorageError
from logboom.base.ids import Epoch, Offset, PartitionIndex
from logboom.broker.config import BrokerConfig
from logboom.broker.partition.append_queue import AppendQueue
from logboom.broker.partition.condition_check import ConditionCheck
from logboom.broker.partition.deletion import RecordDeletion
from logboom.broker.partition.follower import Follower
from logboom.broker.partition.gathering import AppendGathering, HeldAppends
from logboom.broker.partition.id_scan import IdLimits
from logboom.broker.partition.leader import Leader
from logboom.broker.partition.message_ids import MessageIds
from logboom.broker.partition.publications import Publications
from logboom.broker.partition.reads import CommittedReads
from logboom.broker.partition.replication_port import StreamIdPartition
from logboom.broker.partition.role import Role
from logboom.broker.partition.services import PartitionServices
from logboom.broker.partition.validation import AppendRules
from logboom.broker.partition.waiters import AppendResult, Done, RunDone, RunResult, single
from logboom.metadata import Stream, StreamConfig
from logboom.replication.leadership import WriteRefused
from logboom.storage import LogConfig, PartitionLog

__all__ = ["AppendResult", "Partition", "RunDone", "RunResult", "log_config"]


def log_config(stream: Stream, index: PartitionIndex, broker: BrokerConfig) -> LogConfig:
    """The part of a stream's settings that storage goes by, for one of its partitions."""
    config = broker.stream_config(stream)
    # Derived from the partition, where Kafka draws a number for each segment: no restart or replica changes it, and
    # the segments of a thousand partitions that were begun at once do not end at once either.
    jitter_ms = crc32(stream.id.bytes + index.to_bytes(4)) % max(min(config.segment_jitter_ms, config.segment_ms), 1)
    # The segment that is written to is not compacted, so it has to end in time.
    longest_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.compacts else config.segment_ms
    return LogConfig(
        segment_bytes=config.segment_bytes,
        # The broker's own records may be larger than its segments, which are small because each start loads the last.
        max_append_bytes=max(config.segment_bytes, config.max_message_bytes) if stream.internal else None,
        segment_ms=max(longest_ms - jitter_ms, 1),
        index_interval_bytes=max(config.index_interval_bytes, 1),
        max_decompressed_bytes=broker.max_decompressed_bytes,
    )


def _id_limits(config: StreamConfig, broker: BrokerConfig) -> IdLimits:
    """How far back message ids are remembered. Records that may be deleted sooner do not count, so that a new leader
    knows what the one before it knew."""
    window_ms = config.nats_duplicate_window_ms
    if config.deletes and config.retention_ms >= 0:
        window_ms = min(window_ms, config.retention_ms)
    if config.compacts:
        window_ms = min(window_ms, config.max_compaction_lag_ms)
    return IdLimits(window_ms, config.nats_duplicate_window_records, broker.max_decompressed_bytes)


class Partition:
    """See the module. `broker.group_commit.FlushTarget`."""

    __slots__ = (
        "_conditions",
        "_follower",
        "_gathering",
        "_ids",
        "_leader",
        "_queue",
        "_services",
        "config",
        "deletion",
        "index",
        "log",
        "publications",
        "reads",
        "role",
        "stream",
    )

    def __init__(self, stream: Stream, index: PartitionIndex, log: PartitionLog, services: PartitionServices) -> None:
        self.stream = stream
        self.index = index
        self.log = log
        self._services = services
        broker = services.config.now
        self.config = broker.stream_config(stream)
        """The settings in force: the stream's own over the broker's."""
        rules = AppendRules.of(self.config, broker)
        self.reads = CommittedReads(
            str(self), log, cache=services.read_cache, threads=services.readers, counters=services.counters
        )
        self._conditions = ConditionCheck(
            stream.id,
            log,
            config=services.config,
            clock=services.clock,
            counters=services.counters,
            memory=services.window_memory,
            read_soon=self.reads.start,
            resume=partial(services.flusher.enqueue, self, 0),
        )
        self._ids = MessageIds(
            log,
            _id_limits(self.config, broker),
            clock=services.clock,
            settled_clock=services.settled_clock,
            counters=services.counters,
            memory=services.id_memory,
            read_soon=self.reads.start,
            resume=partial(services.flusher.enqueue, self, 0),
        )
        self._queue = AppendQueue(
            log,
            rules,
            self._conditions,
            self._ids,
            services.clock,
            services.settled_clock,
            services.counters,
            services.refused_memory,
        )
        held = HeldAppends(partial(services.flusher.enqueue, self))
        self._leader = self._new_leader(on_commit=held.release)
        self._gathering = AppendGathering(self._leader, log, self._queue, held)
        self.publications = Publications(self._queue, services.clock, self._gathering.arrived)
        """Appends of messages, of which this broker makes the batches."""
        self._follower = Follower(
            self,
            StreamIdPartition(stream.id, index),
            log,
            shown=self.reads,
            safe_end=lambda: self._queue.safe_end,
            on_news=self._leader.watchers.call,
            delete_before=lambda offset: self.deletion.delete_before(offset, why="leader"),
            services=services,
        )
        self.role = Role(
            str(self),
            stream.id,
            log,
            leader=self._leader,
            follower=self._follower,
            queue=self._queue,
            reads=self.reads,
            conditions=self._conditions,
            services=services,
        )
        """Whether this broker leads the partition or copies it, and the change from one to the other."""
        self.deletion = RecordDeletion(self, log, self.role, self.reads, services)

    def _new_leader(self, on_commit: Callable[[], None]) -> Leader:
        services = self._services
        return Leader(
            str(self),
            StreamIdPartition(self.stream.id, self.index),
            broker_id=services.broker_id,
            min_insync_replicas=self.config.min_insync_replicas,
            log=self.log,
            queue=self._queue,
            readable=self.reads,
            replication=services.replication,
            standing=services.standing,
            on_commit=on_commit,
        )

    def configure(self, stream: Stream) -> None:
        """Take the stream's settings, or the broker's, which changed."""
        broker = self._services.config.now
        self.stream = stream
        self.config = config = broker.stream_config(stream)
        did_sync = self._queue.rules.syncs
        self._queue.rules = rules = AppendRules.of(config, broker)
        self._ids.configure(_id_limits(config, broker))
        self.log.configure(log_config(stream, self.index, broker))
        self._leader.minimum_changed(config.min_insync_replicas)
        if rules.syncs and not did_sync and self.log.durable_end < self.log.written_end and not self.offline:
            # Without another append nothing would sync what was acknowledged before.
            self._services.flusher.flush_soon(self)

    # --- what it is ---------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed."""
        return self.reads.high_watermark

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that can be read."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record, counting what is staged."""
        return self.log.log_end_offset

    @property
    def leader_epoch(self) -> Epoch:
        """The leader epoch in force."""
        return self.role.epoch

    @property
    def refusal(self) -> LogboomError | None:
        """Why it accepts no more writes, whoever leads; None if it does."""
        return self.role.failure

    @property
    def offline(self) -> bool:
        """Whether it accepts no more writes, whoever leads."""
        return self.role.failure is not None

    # --- appends ------------------------------------------------------------------------------------------------

    def append(self, records: bytearray | memoryview, *, acks: int, done: Done) -> None:
        """Append one producer's batch: `append_run` for one."""
        self.append_run((records,), acks=acks, done=partial(single, done))

    def append_run(self, run: Sequence[bytearray | memoryview], *, acks: int, done: RunDone) -> None:
        """Append batches that came together, whose memory is the partition's from now on (it is patched in place).

        They are staged at the end of this turn of the loop, with all others that arrived in it, or a little later
        (`gathering`); each is taken or refused on its own. `done` is called when acks is served for all that were
        taken: -1 at commit, 1 when the leader's own disk has them, 0 at once.
        """
        self._queue.enqueue(run, acks, done)
        self._gathering.arrived(sum(map(len, run)), acks)

    @property
    def syncs(self) -> bool:
        """`FlushTarget`: whether the flush of what is staged is to be followed by a sync."""
        rules = self._queue.rules
        return rules.syncs or self.log.log_end_offset - self.log.durable_end >= rules.unsynced_records_max

    def drain(self) -> int:
        """`FlushTarget`: stage what was enqueued."""
        staged = self._queue.drain()
        # Where another broker leads, that refused what was enqueued; what is copied from that one is staged already.
        return staged if self.role.leads else self._follower.drain()

    def flushed(self, end: Offset) -> None:
        """`FlushTarget`: everything below `end` is as safe here as the stream asks for."""
        self._services.rejections.clear()
        self.role.local_end_moved(end)

    def flush_failed(self, error: LogboomError) -> None:
        """`FlushTarget`: the flush failed, and what is staged is lost."""
        if not isinstance(error, RetriableStorageError):
            self.go_offline(error)
            return
        # Room or a handle was lacking: what is staged is taken back and its producers may try again at once; what got
        # onto the disk before the lack is acked as ever.
        self._services.rejections.record(str(self), error)
        taken_back = self.log.abandon_staged()
        self.role.local_end_moved(self._queue.safe_end)
        self._queue.fail_staged(error, taken_back)
        self._follower.flush_lacked_room()
        if self.role.leads and isinstance(error, DiskFullError):
            self._leader.replication_step(WriteRefused())

    # --- leadership ---------------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether this broker leads it; a leader whose log dir is offline is one still."""
        return self.role.leads

    def check_leader_epoch(self, epoch: int) -> None:
        """Fence a client whose leader epoch is older or newer than this one (KIP-320); -1 means that it has none."""
        self.role.check_epoch(epoch)

    def end_of_epoch(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        """The latest epoch not above `epoch` and where it ends (KIP-101, KIP-279)."""
        return self.log.epochs.end_of(epoch, self.log.log_end_offset)

    def watch(self, callback: Callable[[], None]) -> int:
        """Call `callback` on the loop whenever HW moved, the partition went offline or was deleted, until unwatched."""
        return self._leader.watchers.add(callback)

    def unwatch(self, handle: int) -> None:
        """Stop calling. Idempotent."""
        self._leader.watchers.remove(handle)

    # --- the end ------------------------------------------------------------------------------------------------

    def refuse_appends(self, error: LogboomError) -> None:
        """Take no more appends; queued ones complete normally. The first reason stays."""
        self.role.fail(error)

    def go_offline(self, error: LogboomError) -> None:
        """Take no more appends and answer all that wait with the reason; reads go on."""
        self.role.fail(error)
        self._end(error)

    def close(self, error: LogboomError) -> None:
        """Answer everything with `error` from now on, for good. Threads may read the log until `reads.ended`."""
        self.reads.close(error)
        self.role.failure = error
        self.role.fail(error)
        self._services.replication.forget(StreamIdPartition(self.stream.id, self.index))
        self._end(error)

    def _end(self, error: LogboomError) -> None:
        try:
            self._queue.close(error)
        finally:
            self._queue.refusal = self.role.failure
            self._leader.watchers.call()

    def __str__(self) -> str:
        return f"{self.stream.name}-{self.index}"
