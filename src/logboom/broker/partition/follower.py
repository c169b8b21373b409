"""This broker's copy of a partition that another broker leads: the replication core's effects, performed.

    Fetch            -> the replication between brokers, whose answer comes back to `answered` or `failed`
    AppendRecords    -> the log takes the leader's batches as they are, and the group commit writes and syncs them
    Truncate, StartAt -> the flusher's thread cuts the log
    HighWatermarkMoved -> reads go up to it, as far as this log is safe

What the disk has not written cannot be read, so reads stop at the safe end where the leader's mark is above it. Answers
are checked before the core gets them: bytes that are not what a leader's log holds are asked for again, later.

On the loop. Knows nothing of requests and connections.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

from logboom.base.errors import (
    CorruptBatchError,
    InvalidRecordError,
    LogboomError,
    RetriableStorageError,
    StorageError,
)
from logboom.base.ids import NO_BROKER, BrokerId, Epoch, Offset, PartitionEpoch
from logboom.base.units import MIB
from logboom.broker.group_commit import FlushTarget
from logboom.broker.partition.followed_deletions import FollowedDeletions
from logboom.broker.partition.freshness import Freshness
from logboom.broker.partition.replication_port import StreamIdPartition
from logboom.broker.partition.services import PartitionServices
from logboom.records import BatchHeader, crc_ok, iter_batches
from logboom.replication import following
from logboom.replication.following import FetchAnswered, PartitionFollowing
from logboom.replication.reconciliation import EpochEnd
from logboom.storage import PartitionLog

UNWRITTEN_BYTES_MAX: Final = 4 * MIB
"""What is appended and not written yet of one partition, before the next request has to wait for the disk."""
_RETRY_S: Final = 0.5
"""After a full disk, or bytes that are no log: how long a partition waits before it asks again."""

_RESIGNED_S: Final = 5.0
"""After this broker gave up to lead for lack of room: how long it does not follow. It has everything at that moment, so
the next leader would take it into the ISR at once, and its clients would wait for the copy that has no room."""


class Shown(Protocol):
    """The part of the copy that readers see."""

    high_watermark: Offset

    def forget(self) -> None:
        """Records that may be cached elsewhere are no longer in the log."""


class _Retry:
    """One action that runs later, unless another one replaces it."""

    __slots__ = ("_timer",)

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run `action` after this time, and no earlier one."""
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, action)

    def cancel(self) -> None:
        """Run nothing. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Follower:
    """See the module. Life: that of the partition; each `start` begins to follow a leader, `stop` ends it."""

    __slots__ = (
        "_clock",
        "_core",
        "_counters",
        "_cuts",
        "_deletions",
        "_flusher",
        "_held",
        "_key",
        "_lacks_room",
        "_log",
        "_logger",
        "_on_news",
        "_records",
        "_replication",
        "_resigned_until_s",
        "_retry",
        "_safe_end",
        "_settled_clock",
        "_shown",
        "_staged_bytes",
        "_target",
        "_unwritten_bytes",
        "freshness",
    )

    def __init__(
        self,
        target: FlushTarget,
        key: StreamIdPartition,
        log: PartitionLog,
        *,
        shown: Shown,
        safe_end: Callable[[], Offset],
        on_news: Callable[[], None],
        delete_before: Callable[[Offset], Awaitable[object]],
        services: PartitionServices,
    ) -> None:
        """`safe_end`: up to where this copy is as safe as the stream asks for. `on_news` is called when readers may
        read more. `delete_before` removes the oldest records; it raises LogboomError."""
        self._target = target
        self._key = key
        self._log = log
        self._shown = shown
        self._safe_end = safe_end
        self._on_news = on_news
        self._deletions = FollowedDeletions(
            log,
            delete_before,
            may=self._may_delete,
            deleted=partial(self._step, following.LogStartMoved()),
            log=services.log,
            name=str(target),
        )
        self._flusher = services.flusher
        self._clock = services.clock
        self._settled_clock = services.settled_clock
        self._counters = services.counters
        self._replication = services.replication
        self._logger = services.log
        self._core = PartitionFollowing(log.epochs)
        self.freshness = Freshness(str(target), key, services.clock, services.replication)
        """How far readers of this copy are behind the leader."""
        self._records: tuple[memoryview, Sequence[tuple[int, BatchHeader]]] | None = None
        self._held: following.Fetch | None = None
        self._retry = _Retry()
        self._staged_bytes = 0
        self._unwritten_bytes = 0
        self._cuts = 0
        self._resigned_until_s = 0.0
        self._lacks_room = False
        """Whether there was no room on the disk for what came last from the leader that is followed."""

    # --- what it is ---------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> Offset:
        """The leader's high-water mark, at most the end of this log. Some of what is below may not be safe here yet."""
        return self._core.high_watermark

    @property
    def leader(self) -> BrokerId:
        """The broker that is followed; NO_BROKER while there is none."""
        return self._core.leader

    @property
    def is_cutting(self) -> bool:
        """Whether the log is about to be truncated, as a leader has asked for, even one that is no longer followed."""
        return self._cuts > 0

    # --- its beginning and end ----------------------------------------------------------------------------------

    def start(self, leader: BrokerId, epoch: Epoch, high_watermark: Offset, partition_epoch: PartitionEpoch) -> None:
        """Follow `leader` in its epoch. `high_watermark`: what was known to be committed before."""
        self._retry.cancel()
        left_s = self._resigned_until_s - self._clock.monotonic_s()
        if left_s > 0:
            self._retry.after(left_s, partial(self.start, leader, epoch, high_watermark, partition_epoch))
            return
        self._unwritten_bytes = 0
        self._deletions.leaders_start = Offset(0)
        self._lacks_room = self._lacks_room and epoch == self._core.epoch
        end, safe_end = self._log.log_end_offset, self._safe_end()
        self._step(following.FollowingStarted(leader, epoch, end, safe_end, high_watermark, partition_epoch))

    def partition_changed(self, partition_epoch: PartitionEpoch, *, in_sync: bool) -> None:
        """The partition has another state, in the leadership that is followed. `in_sync`: whether this copy is in the
        ISR."""
        self._step(following.PartitionChanged(partition_epoch, in_sync))

    def stop(self) -> None:
        """There is no leader to follow, or this broker leads."""
        self._step(following.FollowingStopped())
        self._held = None
        self._retry.cancel()

    # --- answers ------------------------------------------------------------------------------------------------

    def answered(self, answer: FetchAnswered, records: memoryview) -> None:
        """Take the answer of the leader. Its `records_end` is found here, in the records."""
        try:
            headers = _checked(records)
        except (CorruptBatchError, InvalidRecordError) as error:
            self._logger.error("a leader's answer is not taken", partition=str(self._target), reason=str(error))
            self.failed(answer.number, after_s=_RETRY_S)
            return
        if headers:
            answer = _placed(self._log, answer, headers)
        if answer.records_end is not None:
            self._records = records, headers
        self._step(answer)
        self.freshness.shows(self._shown.high_watermark)
        self._records = None
        if answer.start_is_known:
            self._deletions.leaders_start = answer.log_start
            self._compare_starts(answer)
        self._deletions.follow()

    def _compare_starts(self, answer: FetchAnswered) -> None:
        start = self._log.start
        if not start.is_known and answer.diverging is None and answer.log_start < self._log.log_start_offset:
            start.report_lost("the leader has records below")

    def _may_delete(self) -> Offset:
        """Up to where records may be deleted here."""
        is_known = self._core.reconciled and self._core.leader != NO_BROKER
        return self._shown.high_watermark if is_known else Offset(0)

    def failed(self, number: int, *, after_s: float = 0.0) -> None:
        """The request of a number was refused or lost; it is sent again after this long."""
        if self._core.leader == NO_BROKER:
            return  # what is to be sent again later is another request
        if after_s:
            self._retry.after(after_s, partial(self.failed, number))
        else:
            self._step(following.FetchFailed(number))

    def _start_later(self, leader: BrokerId, epoch: Epoch) -> None:
        if self._flusher.failure is None:
            mark, partition_epoch = self._core.high_watermark, self._core.partition_epoch
            self._retry.after(_RETRY_S, partial(self.start, leader, epoch, mark, partition_epoch))

    # --- the group commit ---------------------------------------------------------------------------------------

    def drain(self) -> int:
        """The bytes that were staged since the last time."""
        staged, self._staged_bytes = self._staged_bytes, 0
        return staged

    def local_end_moved(self, end: Offset) -> None:
        """This copy is as safe as the stream asks for below `end`."""
        self._unwritten_bytes, self._lacks_room = 0, False
        self._step(following.DurableEndMoved(end))
        self._show()
        held, self._held = self._held, None
        if held is not None:
            self._replication.fetch(self._key, held._replace(durable_end=max(held.durable_end, end)))

    def flush_lacked_room(self) -> None:
        """The disk was full and what was staged is taken back: start again from the end of the log, a little later.
        Also called on a leader, which may soon be a follower."""
        leader, epoch = self._core.leader, self._core.epoch
        if leader == NO_BROKER:
            self._resigned_until_s = self._clock.monotonic_s() + _RESIGNED_S
            return
        self._lacks_room = True
        self.stop()
        self._start_later(leader, epoch)

    # --- effects ------------------------------------------------------------------------------------------------

    def _step(self, event: following.Event) -> None:
        for effect in self._core.step(event):
            match effect:
                case following.Fetch():
                    self._fetch(effect)
                case following.AppendRecords():
                    self._append()
                case following.HighWatermarkMoved():
                    self._show()
                case following.ReportDurableEnd():
                    self._replication.report(self._key, effect)
                case following.Truncate(offset, below_high_watermark):
                    self._truncate(offset, below_high_watermark)
                case following.StartAt(offset, start_is_known):
                    self._logger.info("a copy starts over", partition=str(self._target), offset=offset)
                    now_ms = self._settled_clock.now_ms()
                    start_over = partial(self._log.truncate, now_ms=now_ms, discard_all=True)
                    self._cut(partial(start_over, offset, start_is_known=start_is_known))

    def _fetch(self, request: following.Fetch) -> None:
        if self._lacks_room:
            request = request._replace(lacks_room=True)
        if self._unwritten_bytes > UNWRITTEN_BYTES_MAX:
            self._held = request
        else:
            self._replication.fetch(self._key, request)

    def _append(self) -> None:
        assert self._records is not None
        records, headers = self._records
        try:
            end = self._log.append_replicated(records, headers, now_ms=self._clock.wall_ms())
        except (InvalidRecordError, StorageError) as error:
            self._logger.error("a leader's records are not taken", partition=str(self._target), reason=str(error))
            self._begin_again()
            return
        self._staged_bytes += len(records)
        self._counters.replicated_bytes_in += len(records)
        self._unwritten_bytes += len(records)
        self._flusher.enqueue(self._target, len(records))
        self._step(following.Appended(end))

    def _begin_again(self) -> None:
        """The core waits for a change of the log that did not happen: tell it the end of the log, and fetch again
        later."""
        leader, epoch = self._core.leader, self._core.epoch
        self.stop()
        self._step(following.Appended(self._log.log_end_offset))
        if leader != NO_BROKER:
            self._start_later(leader, epoch)

    def _truncate(self, offset: Offset, below_high_watermark: bool) -> None:
        log = self._logger.warning if below_high_watermark else self._logger.info
        log(
            "truncated to where the leader's log goes on",
            partition=str(self._target),
            offset=offset,
            log_end_offset=self._log.log_end_offset,
            below_high_watermark=below_high_watermark,
        )
        self._cut(partial(self._log.truncate, offset, now_ms=self._settled_clock.now_ms()))

    def _cut(self, cut: Callable[[], object]) -> None:
        """Cut the log on the flusher's thread, then report to the core."""
        self._cuts += 1
        task = asyncio.ensure_future(self._flusher.run(partial(_attempt, cut)))
        task.add_done_callback(self._was_cut)

    def _was_cut(self, task: "asyncio.Future[LogboomError | None]") -> None:
        self._cuts -= 1
        if task.cancelled():
            return
        fault = task.exception() or task.result()
        if fault is not None:
            # Room is lacking, and may be there again soon. Or the log dir failed, or there is damage where the cut was
            # to be: then nothing is fetched until another start.
            self._logger.error("a copy cannot be cut", partition=str(self._target), reason=str(fault))
            self._shown.forget()
            self._begin_again()
            return
        self._shown.forget()
        self._show()
        self._step(following.Truncated(self._log.log_end_offset, self._log.durable_end))

    def _show(self) -> None:
        """Let readers read up to the mark, as far as this copy is safe."""
        if self._core.leader == NO_BROKER:
            return
        mark = min(self._core.high_watermark, self._safe_end())
        self.freshness.shows(mark)
        if mark != self._shown.high_watermark:
            self._shown.high_watermark = mark
            self._on_news()
            self._deletions.follow()


def _placed(log: PartitionLog, answer: FetchAnswered, headers: Sequence[tuple[int, BatchHeader]]) -> FetchAnswered:
    """The answer with the place of its records in the log."""
    first, end = headers[0][1].base_offset, log.log_end_offset
    if first >= end:
        return FetchAnswered(
            answer.number,
            answer.high_watermark,
            answer.log_start,
            diverging=answer.diverging,
            records_end=headers[-1][1].next_offset,
            offset=answer.offset,
            stands=answer.stands,
            start_is_known=answer.start_is_known,
        )
    # Key compaction has put one batch in the place of several, and this log ends among those. They are committed
    # and not lost by it: the batch comes whole once the log ends where it begins.
    return FetchAnswered(
        answer.number,
        answer.high_watermark,
        answer.log_start,
        diverging=EpochEnd(log.epochs.latest, Offset(first)),
        offset=answer.offset,  # an answer that was taken already cuts nothing
        start_is_known=answer.start_is_known,
    )


def _attempt(cut: Callable[[], object]) -> LogboomError | None:
    """Truncate. Damage at the point of truncation is returned and not raised, since it concerns this log and not the
    log dir."""
    try:
        cut()
    except RetriableStorageError:
        raise
    except StorageError as error:
        if isinstance(error.__cause__, OSError):
            raise
        return error
    return None


def _checked(records: memoryview) -> Sequence[tuple[int, BatchHeader]]:
    """Position and header of each batch. Raises CorruptBatchError, InvalidRecordError."""
    if not records:
        return ()
    headers = tuple(iter_batches(records))
    for position, header in headers:
        if not crc_ok(records, position, header):
            raise CorruptBatchError(f"the batch at offset {header.base_offset} has a wrong CRC")
    if not headers or headers[-1][0] + headers[-1][1].size_bytes != len(records):
        raise CorruptBatchError("the records end inside a batch")
    return headers
