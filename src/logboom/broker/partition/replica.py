"""One partition of this broker: the log, its leadership, and everybody who waits for either.

Append: it arrives -> the end of the loop's turn -> records.validate -> storage append (staged) -> flusher -> `flushed`
-> replication step -> HW moves -> those who wait for it are answered, in order -> watchers (the fetch purgatory) are
called. Everything here runs on the loop, except reads that need the disk. Knows nothing of requests and connections.

Life: opened by the partition store; takes appends until it goes offline (reads go on) or is closed for good.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, TypeAlias, TypeVar

from logboom.base.errors import (
    FencedLeaderEpochError,
    LogboomError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    OffsetOutOfRangeError,
    RetriableStorageError,
    StorageError,
    UnknownLeaderEpochError,
)
from logboom.base.ids import NO_EPOCH, Epoch, Offset, PartitionIndex
from logboom.broker.partition.reads import CommittedReads
from logboom.broker.partition.services import PartitionServices
from logboom.metadata import Flush, Stream, StreamConfig, TimestampType
from logboom.records import (
    NO_TIMESTAMP,
    RecordLimits,
    check_timestamps,
    read_header,
    stamp_append_time,
    validate_produced,
)
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
from logboom.storage import Appended, Batch, LogConfig, PartitionLog, Retention, Segment

Result = TypeVar("Result")


class AppendResult(NamedTuple):
    """What an append came to."""

    base_offset: Offset
    log_append_time_ms: int
    """-1 unless the stream stamps its own time."""
    log_start_offset: Offset


Done: TypeAlias = Callable[[AppendResult | LogboomError], None]
"""Called once, on the loop, after `append` returned."""


class RunResult(NamedTuple):
    """What the appends of a run came to."""

    outcomes: Sequence[Offset | LogboomError]
    """For each batch, in order, its base offset or why it was not taken."""
    log_append_time_ms: int
    """-1 unless the stream stamps its own time."""
    log_start_offset: Offset


RunDone: TypeAlias = Callable[[RunResult], None]
"""Called once, on the loop, after `append_run` returned."""

_Arrived: TypeAlias = tuple[Sequence[bytearray | memoryview], int, RunDone]
"""A run, its acks and whom to tell."""

_Waiting: TypeAlias = deque[tuple[int, RunDone, RunResult]]
"""Who is answered once the offset that comes first is reached; the offsets never go down."""


def log_config(config: StreamConfig, max_decompressed_bytes: int) -> LogConfig:
    """What storage must know of a stream's settings."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        max_decompressed_bytes=max_decompressed_bytes,
    )


def _for_one(done: Done, result: RunResult) -> None:
    """The result of a run of one batch, for whoever appended one."""
    (outcome,), time_ms, start = result
    done(outcome if isinstance(outcome, LogboomError) else AppendResult(outcome, time_ms, start))


def _same_acks(arrived: Sequence[_Arrived]) -> list[_Arrived]:
    """Those at the head of the line that ask for the same acks."""
    _, alike = next(groupby(arrived, itemgetter(1)))
    return list(alike)


def _share(runs: Sequence[_Arrived], result: RunResult) -> None:
    """Each run's part of the result of all."""
    outcomes, time_ms, start = result
    at = 0
    for run, _, done in runs:
        done(RunResult(outcomes[at : at + len(run)], time_ms, start))
        at += len(run)


def _limit(value: int) -> int | None:
    """A limit as Kafka writes it: -1 is none."""
    return None if value < 0 else value


def _nothing() -> None:
    """What is run on the flusher's thread to know that all before it is done."""


class Partition(CommittedReads):
    """See the module."""

    __slots__ = (
        "_ahead_max_ms",
        "_append_time",
        "_arrived",
        "_at_commit",
        "_at_leader",
        "_behind_max_ms",
        "_below_minimum",
        "_core",
        "_last_handle",
        "_limits",
        "_refusal",
        "_watchers",
        "blocked",
        "index",
        "leader_epoch",
        "marked",
        "stream",
        "syncs",
    )

    def __init__(self, stream: Stream, index: PartitionIndex, log: PartitionLog, services: PartitionServices) -> None:
        self.stream = stream
        self.index = index
        super().__init__(log, services)
        self.blocked = False
        self.marked = False
        self.leader_epoch: Epoch = NO_EPOCH
        self._core = PartitionLeadership(services.broker_id, min_insync_replicas=stream.config.min_insync_replicas)
        self._refusal: LogboomError | None = None
        self._arrived: list[_Arrived] = []
        self._at_commit: _Waiting = deque()
        self._at_leader: _Waiting = deque()
        self._watchers: dict[int, Callable[[], None]] = {}
        self._last_handle = 0
        self._below_minimum = True
        self._take_config(stream.config)

    def lead(self) -> None:
        """Begin the next leadership; off the loop, before anybody else knows the partition. Syncs the epoch's start.

        On a full disk that comes with the first write there is room for: a leadership that wrote nothing left nothing.
        """
        epoch = Epoch(self.log.epochs.latest + 1)
        isr = frozenset({self._services.broker_id})
        self._perform(self._core.step(LeadershipStarted(epoch, isr, self.log.durable_end, Offset(0))))
        self.log.try_save_epochs()

    def configure(self, stream: Stream) -> None:
        """Take the stream's settings, or the broker's, which changed."""
        self.stream = stream
        self._take_config(stream.config)
        self._perform(self._core.step(MinimumChanged(stream.config.min_insync_replicas)))

    def _take_config(self, config: StreamConfig) -> None:
        broker = self._services.config.now
        self._limits = RecordLimits(config.max_message_bytes, broker.max_decompressed_bytes, broker.max_batch_records)
        self._append_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        self._behind_max_ms = config.message_timestamp_before_max_ms
        self._ahead_max_ms = config.message_timestamp_after_max_ms
        self.syncs = config.flush is Flush.COMMIT
        self.log.config = log_config(config, broker.max_decompressed_bytes)

    # --- what it is ---------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> Offset:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """Where the next record goes; what is staged counts."""
        return self.log.log_end_offset

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def refusal(self) -> LogboomError | None:
        """Why it takes no more appends, if so."""
        return self._refusal

    @property
    def offline(self) -> bool:
        """Whether it takes no more appends."""
        return self._refusal is not None

    # --- writing ------------------------------------------------------------------------------------------------

    def append(self, records: bytearray | memoryview, *, acks: int, done: Done) -> None:
        """Append one producer's batch: `append_run` for one."""
        self.append_run((records,), acks=acks, done=partial(_for_one, done))

    def append_run(self, run: Sequence[bytearray | memoryview], *, acks: int, done: RunDone) -> None:
        """Append batches that came together, whose memory is the partition's from now on (it is patched in place).

        They are taken in at the end of this turn of the loop, with all others that arrived in it; each is taken or
        refused on its own. `done` is called when acks is served for all that were taken: -1 at commit, 1 when the
        leader's own disk has them, 0 at once.
        """
        first = not self._arrived
        self._arrived.append((run, acks, done))
        self._services.flusher.enqueue(self if first else None, sum(map(len, run)))

    def drain(self) -> None:
        """Append all that arrived, as one where that can be. Who is not appended stays there."""
        arrived = self._arrived
        while arrived:
            runs = _same_acks(arrived)
            acks = runs[0][1]
            if len(runs) == 1:
                self._append(runs[0][0], acks, runs[0][2])
            else:
                self._append([records for run, _, _ in runs for records in run], acks, partial(_share, runs))
            del arrived[: len(runs)]

    def _append(self, batches: Sequence[bytearray | memoryview], acks: int, done: RunDone) -> None:
        if self._refusal is not None or (acks == -1 and self._below_minimum):
            nothing = RunResult([Offset(-1)] * len(batches), NO_TIMESTAMP, Offset(-1))
            self._refuse(done, nothing, self._refusal or self._not_enough_replicas())
            return
        now_ms = self._services.clock.wall_ms()
        checked = [self._checked(records, now_ms) for records in batches]
        offsets = self._append_together(checked, now_ms)
        if offsets is None:
            self._append_each(checked, now_ms, acks, done)
            return
        result = self._result(offsets, now_ms)
        if acks == 0:
            done(result)
        else:
            (self._at_commit if acks == -1 else self._at_leader).append((self.log.log_end_offset, done, result))

    def _checked(self, records: bytearray | memoryview, now_ms: int) -> Batch | LogboomError:
        """A client's batch and its head, stamped where the stream does so; or what is wrong with it."""
        try:
            ((_, header),) = validate_produced(records, self._limits)
            if self._append_time:
                stamp_append_time(records, 0, now_ms)
                header = read_header(records)
            elif header.max_timestamp > now_ms + self._ahead_max_ms or now_ms > self._behind_max_ms:
                oldest_ms, newest_ms = now_ms - self._behind_max_ms, now_ms + self._ahead_max_ms
                check_timestamps(records, header, oldest_ms, newest_ms, self._limits)
        except LogboomError as error:
            return error
        return records, header

    def _append_together(self, checked: Sequence[Batch | LogboomError], now_ms: int) -> list[Offset] | None:
        """Stage all as one, where all are right and none is of an idempotent producer; their offsets, else None."""
        batches = [one for one in checked if isinstance(one, tuple) and one[1].producer_id < 0]
        if len(batches) < len(checked):
            return None
        try:
            staged = self.log.append_run(batches, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except StorageError:
            return None  # which each is told on its own
        if staged is None:
            return None
        offsets = [offset for offset, _, _ in staged.batches]
        self._count(len(batches), staged.next_offset - offsets[0], staged.size_bytes)
        return offsets

    def _append_each(self, checked: Sequence[Batch | LogboomError], now_ms: int, acks: int, done: RunDone) -> None:
        """Stage batch by batch: one may be wrong, one a duplicate, one may begin a segment."""
        outcomes: list[Offset | LogboomError] = []
        needed, before = -1, self.log.log_end_offset
        for one in checked:
            appended = self._append_one(one, now_ms)
            if isinstance(appended, LogboomError):
                self._services.counters.refused_appends += 1
                outcomes.append(appended)
            else:
                needed = max(needed, appended.last_offset + 1)
                outcomes.append(appended.base_offset)
        result = self._result(outcomes, now_ms)
        if acks == 0 or needed < 0:
            done(result)
        elif needed <= before:
            self._wait_for_first(needed, acks, done, result)
        else:
            (self._at_commit if acks == -1 else self._at_leader).append((needed, done, result))

    def _append_one(self, one: Batch | LogboomError, now_ms: int) -> Appended | LogboomError:
        if isinstance(one, LogboomError):
            return one
        records, header = one
        try:
            appended = self.log.append(records, ((0, header),), leader_epoch=self.leader_epoch, now_ms=now_ms)
        except LogboomError as error:
            return error
        if appended.duplicate:
            self._services.counters.duplicate_batches += 1
        else:
            self._count(1, header.last_offset_delta + 1, len(records))
        return appended

    def _count(self, batches: int, records: int, size_bytes: int) -> None:
        """What was staged, for those who count and for the flusher."""
        counters = self._services.counters
        counters.appended_batches += batches
        counters.appended_records += records
        counters.appended_bytes += size_bytes
        self._services.flusher.staged(self, size_bytes)

    def _result(self, outcomes: Sequence[Offset | LogboomError], now_ms: int) -> RunResult:
        return RunResult(outcomes, now_ms if self._append_time else NO_TIMESTAMP, self.log.log_start_offset)

    def _wait_for_first(self, needed: int, acks: int, done: RunDone, result: RunResult) -> None:
        """Repeated batches are answered once their first copies are safe, which they may have been for long."""
        waiting, reached = (self._at_commit, self.high_watermark) if acks == -1 else (self._at_leader, self._safe_end)
        if needed <= reached:
            done(result)
            return
        # It may ask for less than who came before it: it waits with them, which keeps the line in order.
        if waiting and waiting[-1][0] > needed:
            needed = waiting[-1][0]
        waiting.append((needed, done, result))

    @property
    def _safe_end(self) -> Offset:
        """Up to where this broker's own copy is as safe as the stream asks for."""
        return self.log.durable_end if self.syncs else self.log.written_end

    def _refuse(self, done: RunDone, result: RunResult, error: LogboomError, safe: int = 0) -> None:
        """`error` in place of every offset that is not below `safe`."""
        outcomes = [
            outcome if isinstance(outcome, LogboomError) or 0 <= outcome < safe else error
            for outcome in result.outcomes
        ]
        self._services.counters.refused_appends += sum(outcome is error for outcome in outcomes)
        done(RunResult(outcomes, result.log_append_time_ms, result.log_start_offset))

    def _not_enough_replicas(self) -> NotEnoughReplicasError:
        there, wanted = len(self._core.isr), self._core.min_insync_replicas
        return NotEnoughReplicasError(f"{self} has {there} in-sync replica, min.insync.replicas asks for {wanted}")

    # --- after a flush (base: flusher.Flushed) ------------------------------------------------------------------

    def flushed(self, end: Offset) -> None:
        """Everything below `end` is as safe here as the stream asks for."""
        self._services.rejections.clear()
        self._reached(end)

    def _reached(self, end: Offset) -> None:
        self._answer(self._at_leader, end)
        self._perform(self._core.step(DurableEndMoved(self._services.broker_id, end)))

    def flush_failed(self, error: LogboomError) -> None:
        """What was staged is lost. Where room or a handle was lacking it is taken back and may be tried again at once;
        what got onto the disk before that is acked as ever."""
        if isinstance(error, RetriableStorageError):
            self._services.rejections.record(str(self), error)
            self.log.abandon_staged()
            self._reached(self._safe_end)
            self._fail_waiting(error)
            self.blocked = False
        else:
            self.go_offline(error)

    def _perform(self, effects: tuple[Effect, ...]) -> None:
        self._below_minimum = not self._core.has_minimum
        for effect in effects:
            match effect:
                case HighWatermarkMoved(offset):
                    self.high_watermark = offset
                    self._answer(self._at_commit, offset)
                    self._call_watchers()
                case EpochStarted(epoch, start_offset):
                    self.log.start_epoch(epoch, start_offset)
                    self.leader_epoch = epoch
                case BelowMinimum():
                    why = f"{self} fell below min.insync.replicas before the records were committed; they may yet be"
                    self._fail(self._at_commit, NotEnoughReplicasAfterAppendError(why), self.high_watermark)

    def _answer(self, waiting: _Waiting, reached: Offset) -> None:
        while waiting and waiting[0][0] <= reached:
            _, done, result = waiting.popleft()
            done(result)

    def _fail(self, waiting: _Waiting, error: LogboomError, safe: Offset) -> None:
        while waiting:
            _, done, result = waiting.popleft()
            self._refuse(done, result, error, safe)

    def _fail_waiting(self, error: LogboomError) -> None:
        self._fail(self._at_commit, error, self.high_watermark)
        self._fail(self._at_leader, error, self._safe_end)

    # --- deleting -----------------------------------------------------------------------------------------------

    async def delete_records(self, offset: int) -> Offset:
        """Delete committed records below `offset` (-1: all of them) for a client; the log start offset after it.

        Raises OffsetOutOfRangeError above the high-water mark, StorageError.
        """
        wanted = self.high_watermark if offset == -1 else offset
        if not 0 <= wanted <= self.high_watermark:
            raise OffsetOutOfRangeError(
                f"records of {self} can be deleted up to offset {self.high_watermark}, not to {offset}"
            )
        if wanted > self.log_start_offset:
            await self.delete_before(Offset(wanted), why="records")
        return self.log_start_offset

    async def delete_before(self, offset: Offset, *, why: str) -> int:
        """Move the log start up to a committed offset and remove what lies below; how many segments went. `why` is for
        the counters.

        Returns once the new start survives a power failure and the files are gone. Raises StorageError.
        """
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        gone = await self._services.flusher.run(partial(self._detach_before, offset))
        if gone:
            counters = self._services.counters
            counters.segments_deleted[why] += len(gone)
            counters.segment_bytes_deleted[why] += sum(segment.size_bytes for segment in gone)
            await self._in_thread(partial(self.log.remove_detached, gone))
        return len(gone)

    def _detach_before(self, offset: Offset) -> tuple[Segment, ...]:
        """On the flusher's thread. Streams that do not wait for the disk may have committed what is not synced yet."""
        if self.log.durable_end < offset and not self.blocked:
            self.log.flush(sync=True)
        return self.log.detach_before(offset)

    async def enforce_retention(self) -> int:
        """Let go of old segments as the stream's settings ask, committed ones only; how many went. StorageError."""
        config, log, now_ms = self.stream.config, self.log, self._services.clock.wall_ms()
        retention = Retention(
            _limit(config.retention_ms), _limit(config.retention_bytes), _limit(config.retention_messages)
        )
        if not retention.is_limited and log.log_start_offset <= log.segments[0].base:
            return 0
        end = log.log_end_offset
        over = await self._in_thread(partial(log.expired_to_the_end, retention, now_ms=now_ms))
        if over and self.high_watermark == end == log.log_end_offset and not self.offline and log.roll():
            self._services.flusher.staged(self, 0)
            await self._services.flusher.run(_nothing)
        find = partial(log.retained_from, retention, now_ms=now_ms, high_watermark=self.high_watermark)
        start, first_end = await self._in_thread(find), log.segments[0].end
        return await self.delete_before(start, why="retention") if first_end is not None and first_end <= start else 0

    # --- epochs -------------------------------------------------------------------------------------------------

    def check_leader_epoch(self, epoch: int) -> None:
        """Fence a client whose knowledge of the leadership is older or newer (KIP-320); -1 is no knowledge."""
        if epoch == NO_EPOCH or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpochError(f"{self} is at leader epoch {self.leader_epoch}, the request at {epoch}")
        raise UnknownLeaderEpochError(f"{self} is at leader epoch {self.leader_epoch}, the request at {epoch}")

    def end_of_epoch(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        """The latest epoch not above `epoch` and where it ends (KIP-101, KIP-279)."""
        return self.log.end_of_epoch(epoch)

    # --- watchers -----------------------------------------------------------------------------------------------

    def watch(self, callback: Callable[[], None]) -> int:
        """Call `callback` on the loop whenever HW moved, the partition went offline or was deleted, until unwatched."""
        self._last_handle += 1
        self._watchers[self._last_handle] = callback
        return self._last_handle

    def unwatch(self, handle: int) -> None:
        """Stop calling. Idempotent."""
        self._watchers.pop(handle, None)

    def _call_watchers(self) -> None:
        if self._watchers:
            for callback in tuple(self._watchers.values()):
                callback()

    # --- the end ------------------------------------------------------------------------------------------------

    def refuse_appends(self, error: LogboomError) -> None:
        """Take no more appends; what was taken is still answered as it deserves. The first reason stays."""
        if self._refusal is None:
            self._refusal = error

    def go_offline(self, error: LogboomError) -> None:
        """Take no more appends and tell all who wait; reads go on."""
        self.refuse_appends(error)
        self._fail_waiting(error)
        self._call_watchers()

    async def retire(self, error: LogboomError) -> None:
        """Answer everything with `error` from now on; returns once no thread reads the log any more."""
        self._refusal = error
        self.drain()
        self.end_reads(error)
        self._fail_waiting(error)
        self._call_watchers()
        await self.reads_ended()

    def __str__(self) -> str:
        return f"{self.stream.name}-{self.index}"
