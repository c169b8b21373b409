"""Key compaction of the logs of one log dir (Kafka's LogCleaner): one log at a time, the one that needs it most first.

    look      (thread)  how dirty each log of a compacted stream is; `cleaning_schedule` picks one
    write     (thread)  the log writes the next segment with what is to stay, beside the one that is in use
    swap      (flusher) the new one takes its place: a few renames, in between two rounds of appends
    finish    (flusher) the log notes up to where it is clean

Everything long happens on a thread of its own, which also keeps to the rate limit; for all but small logs that thread
waits for a process that does the work (`remote_passes`). The run of a log ends in the middle
where the stream is deleted, where its policy is changed, or where the broker stops: every swap left the log right, and
what is unfinished is removed. A log that turns out to be damaged is reported and left alone until the next start, or
until records of it are deleted, perhaps the damaged ones, or are fetched again from other brokers.

Knows partitions, the flusher and when to compact. How a log is compacted is `storage.compaction`.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current
from logboom.base.errors import CompactionCancelledError, LogboomError, RetriableStorageError, StorageError
from logboom.base.ids import Offset, StreamName
from logboom.base.ports import Clock, Mailbox, SyncFailedError
from logboom.base.units import SECOND_MS
from logboom.broker.config import BrokerConfig
from logboom.broker.disk.cleaning_schedule import (
    Backlogs,
    CleanableLog,
    ClientBackoff,
    RateLimit,
    Served,
    most_urgent,
)
from logboom.broker.disk.flusher import Flusher
from logboom.broker.disk.maintenance import Pause
from logboom.broker.disk.remote_passes import PassProcess
from logboom.broker.metrics import Counters
from logboom.broker.partition.reader_threads import ReaderThreads
from logboom.broker.partition.replica import Partition
from logboom.broker.runtime import Runtime
from logboom.metadata import INT64_MAX
from logboom.metadata.attachment import is_attached
from logboom.storage import Cleaned, CompactionSettings, Dirt
from logboom.storage.compaction import Cleaning

STOP_WAIT_S: Final = 10.0
"""How long the end of the broker waits for the step that is running, which asks every few MiB whether to stop."""

_NAMED_MAX: Final = 5

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CleanerState:
    """What the cleaner last saw and did."""

    dirt: dict[Partition, Dirt]
    """Every log of a compacted stream, as it was at the last look."""
    uncleanable: dict[Partition, str]
    """Those that are left alone, each with the reason."""
    last_run_s: float = 0.0
    """How long the last run over one log took."""
    last_recopy_ratio: float = 0.0
    """What it wrote as a share of what it read."""

    @property
    def max_dirty_ratio(self) -> float:
        """Of the dirtiest log that is compacted."""
        return max((dirt.ratio for one, dirt in self.dirt.items() if one not in self.uncleanable), default=0.0)

    def sentence_of(self, stream: StreamName) -> str:
        """How the compaction of a stream stands: its partitions that cannot be compacted, else the dirtiest one."""
        faults = sorted((one.index, why) for one, why in self.uncleanable.items() if one.stream.name == stream)
        if faults:
            told = "; ".join(f"partition {index} cannot be compacted: {why}" for index, why in faults[:_NAMED_MAX])
            return told + (f"; and {len(faults) - _NAMED_MAX} more" if len(faults) > _NAMED_MAX else "")
        ratios = [(dirt.ratio, one.index) for one, dirt in self.dirt.items() if one.stream.name == stream]
        if not ratios:
            return "not looked at yet"
        ratio, index = max(ratios)
        return f"partition {index} is {ratio:.0%} dirty" + (", the others less" if len(ratios) > 1 else "")

    @property
    def uncleanable_bytes(self) -> int:
        """Bytes that cannot be compacted."""
        return sum(self.dirt[one].dirty_bytes for one in self.uncleanable if one in self.dirt)


class LogCleaner:
    """See the module. Life: made, `run` as a task until that is cancelled. On the loop."""

    def __init__(
        self,
        partitions: Callable[[], Iterable[Partition]],
        flusher: Flusher,
        config: Current[BrokerConfig],
        *,
        runtime: Runtime,
        counters: Counters,
        log: FilteringBoundLogger,
    ) -> None:
        self.state = CleanerState({}, {})
        self._partitions = partitions
        self._flusher = flusher
        self._config = config
        self._clock = runtime.clock
        self._settled_clock = runtime.settled_clock
        self._counters = counters
        self._log = log
        self._thread = ReaderThreads(runtime.workers.pool("cleaner", 1), runtime.clock)
        self._process = PassProcess(runtime.workers)
        self._pace = _Pace(runtime.workers.mailbox(), config, runtime.clock, counters)
        self._seen: dict[Partition, tuple[object, ...] | None] = {}
        """What the last look at each log depended on."""
        self._left_at: dict[Partition, tuple[Offset, int]] = {}
        """What was to be seen of each log that is left alone when it was given up: see `_what_mends`."""
        self._backlogs = Backlogs[Partition]()
        self._failures: dict[Partition, int] = {}
        """How often in a row each log was tried and did not get anywhere, where it did not."""
        self._swapping: asyncio.Future[Any] | None = None
        self._pause = Pause(config, lambda config: config.cleaner.backoff_ms / SECOND_MS)

    async def run(self) -> None:
        """Compact what needs it, for ever. Returns where the log dir failed."""
        try:
            while self._flusher.failure is None:
                candidate = await self._look()
                if candidate is None or not await self._clean(candidate):
                    await self._end_process()
                    await self._pause.over()
        finally:
            await self._end_process()
            self._thread.shutdown()

    async def _end_process(self) -> None:
        """Give back the process of the passes, and with it its memory."""
        if self._process.runs:
            await asyncio.wait({self._thread.run(self._process.end)}, timeout=STOP_WAIT_S)

    # --- what to do -------------------------------------------------------------------------------------------------

    async def _look(self) -> CleanableLog[Partition] | None:
        """The log to compact now; None where none needs it."""
        wanted = [one for one in self._partitions() if one.config.compacts and not one.offline]
        self._failures = {one: count for one, count in self._failures.items() if one in wanted}
        self._backlogs.keep(wanted)
        self._left_at = {one: at for one, at in self._left_at.items() if one in wanted and _what_mends(one) == at}
        kept = {one: why for one, why in self.state.uncleanable.items() if one in self._left_at}
        self.state = replace(self.state, uncleanable=kept)
        dirt: dict[Partition, Dirt] = {}
        last_seen, self._seen = self._seen, {}
        for partition in wanted:
            # Where nothing was written, deleted, compacted or set since, a thousand quiet logs cost no look at each.
            self._seen[partition] = seen = _what_dirt_depends_on(partition)
            if seen is not None and last_seen.get(partition) == seen and partition in self.state.dirt:
                dirt[partition] = self.state.dirt[partition]
                continue
            try:
                dirt[partition] = await self._on_thread(partition, partial(self._dirt_of, partition))
            except StorageError as error:
                if partition not in self.state.uncleanable:
                    self._give_up(partition, error)
            except LogboomError:
                continue  # deleted meanwhile
        self.state = replace(self.state, dirt=dirt)
        return most_urgent(
            CleanableLog(one, found, one.config.min_cleanable_dirty_ratio, self._failures.get(one, 0))
            for one, found in dirt.items()
            if one not in self.state.uncleanable
        )

    def _dirt_of(self, partition: Partition) -> Dirt:
        return partition.log.compaction.dirt(
            self._settings_of(partition), now_ms=self._settled_clock.now_ms(), stable_end=partition.high_watermark
        )

    def _settings_of(self, partition: Partition) -> CompactionSettings:
        config = partition.config
        max_lag_ms = config.max_compaction_lag_ms
        return CompactionSettings(
            delete_retention_ms=config.delete_retention_ms,
            min_compaction_lag_ms=_min_lag_ms(partition),
            max_compaction_lag_ms=None if max_lag_ms == INT64_MAX else max_lag_ms,
            max_batch_bytes=config.max_message_bytes,
            map_bytes=self._config.now.cleaner.key_map_bytes,
        )

    # --- one log ----------------------------------------------------------------------------------------------------

    async def _clean(self, candidate: CleanableLog[Partition]) -> bool:
        """Compact one log; False where that did not get anywhere, and the next look has to wait."""
        partition = candidate.log
        got_on = await self._run_over(partition, candidate.dirt)
        if got_on:
            self._failures.pop(partition, None)
        else:
            self._failures[partition] = self._failures.get(partition, 0) + 1
        return got_on

    async def _run_over(self, partition: Partition, dirt: Dirt) -> bool:
        began_s = self._clock.monotonic_s()
        cleaning = partition.log.compaction.begin(
            self._settings_of(partition),
            now_ms=self._settled_clock.now_ms(),
            stable_end=partition.high_watermark,
            start_passes=self._process.start_passes,
        )
        may_rest = self._backlogs.may_rest(partition, dirt)
        self._pace.begin(lambda: not partition.config.compacts, may_rest=may_rest)
        try:
            cleaned = await self._steps(partition, cleaning)
        except asyncio.CancelledError:
            self._process.kill()  # the broker stops: the thread is not to wait for what may not answer any more
            raise
        except CompactionCancelledError as error:
            self._log.info("compaction cancelled", partition=str(partition), reason=str(error))
            return False
        except RetriableStorageError as error:
            self._log.warning("compaction postponed", partition=str(partition), reason=str(error))
            return False
        except StorageError as error:
            self._give_up(partition, error)
            return False
        except LogboomError:
            return True  # the stream was deleted
        except Exception as fault:  # noqa: BLE001 - a bug of ours stops the compaction of one log
            self._log.error("compaction failed on an internal error", partition=str(partition), exc_info=fault)
            self._leave_alone(partition, "an internal error: see the log")
            return False
        finally:
            # A step that is still running looks at this; then the thread is free to remove what was left unfinished.
            self._pace.cancel()
            await self._end(cleaning)
        self._report(partition, cleaned, self._clock.monotonic_s() - began_s)
        return cleaned.first_dirty_offset > dirt.first_dirty_offset

    async def _steps(self, partition: Partition, cleaning: Cleaning) -> Cleaned:
        while True:
            step = partial(cleaning.write_next, self._pace.spend, self._pace.cancelled)
            swap = await self._on_thread(partition, step)
            if swap is None:
                return await self._on_flusher(cleaning.finish)
            await self._on_flusher(swap)

    async def _end(self, cleaning: Cleaning) -> None:
        """Remove what is unfinished, behind the step that is running. At the stop of the broker that is waited for."""
        if self._swapping is not None and not self._swapping.done():
            return  # the disk hangs; the next start removes what is left
        ended = self._thread.run(cleaning.abandon)
        await asyncio.wait({ended}, timeout=STOP_WAIT_S)

    def _give_up(self, partition: Partition, error: StorageError) -> None:
        """The disk failed, or a batch is damaged: compaction would have to guess what it says."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, SyncFailedError):
            cause = cause.__cause__
        if isinstance(cause, SyncFailedError):
            self._flusher.disk_failed(cause)
            return
        self._log.error("log cannot be compacted", partition=str(partition), reason=str(error))
        self._leave_alone(partition, str(error))

    def _leave_alone(self, partition: Partition, reason: str) -> None:
        self._left_at[partition] = _what_mends(partition)
        self.state = replace(self.state, uncleanable={**self.state.uncleanable, partition: reason})

    def _report(self, partition: Partition, cleaned: Cleaned, took_s: float) -> None:
        counters = self._counters
        counters.compactions += 1
        counters.compacted_read_bytes += cleaned.bytes_read
        counters.compacted_written_bytes += cleaned.bytes_written
        counters.compacted_away_records += cleaned.records_removed
        recopied = cleaned.bytes_written / cleaned.bytes_read if cleaned.bytes_read else 0.0
        self.state = replace(self.state, last_run_s=took_s, last_recopy_ratio=recopied)
        self._log.info(
            "log compacted",
            partition=str(partition),
            clean_up_to=cleaned.first_dirty_offset,
            is_complete=cleaned.is_complete,
            size_bytes_before=cleaned.bytes_before,
            size_bytes_after=cleaned.bytes_after,
            records_removed=cleaned.records_removed,
            seconds=round(took_s, 3),
        )
        if cleaned.batches_without_horizon or cleaned.batches_above_limit:
            self._log.warning(
                "compacted batches above max.message.bytes",
                partition=str(partition),
                tombstones_kept_batches=cleaned.batches_without_horizon,
                larger_batches=cleaned.batches_above_limit,
                why="timestamps, or the codec's level, take more room than before; max.message.bytes may be raised",
            )
        if cleaned.records_without_key:
            self._log.warning(
                "records without a key removed",
                partition=str(partition),
                records=cleaned.records_without_key,
                why="they were written before the stream had cleanup.policy=compact",
            )

    async def _on_flusher(self, function: Callable[[], Result]) -> Result:
        """Run what changes the log's files to its end, also where the cleaner is cancelled meanwhile: what comes after
        would touch the same files.
        """
        work = self._swapping = asyncio.ensure_future(self._flusher.run(function))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait({work}, timeout=STOP_WAIT_S)
            raise

    async def _on_thread(self, partition: Partition, function: Callable[[], Result]) -> Result:
        """Run a step; the directory of the partition is not removed before it has ended."""
        return await partition.reads.on_threads(self._thread, function)


def _min_lag_ms(partition: Partition) -> int:
    """How long every record stays. Messages of NATS do as long as their ids are to be known, which a new leader finds
    in their records: one that is sent again is a duplicate, although a later one of its key has superseded it."""
    config = partition.config
    ids_ms = config.nats_duplicate_window_ms if is_attached(partition.stream.overrides) else 0
    return min(max(config.min_compaction_lag_ms, ids_ms), config.max_compaction_lag_ms)


def _what_mends(partition: Partition) -> tuple[Offset, int]:
    """Once this changes, what was damaged may be gone: records of it were deleted, or a copy of it was fetched again
    from other brokers, which begins where it began before."""
    return partition.log_start_offset, partition.log.compaction.truncation_count


def _what_dirt_depends_on(partition: Partition) -> tuple[object, ...] | None:
    """How dirty a log is stays the same as long as this does. None where it changes with the time, too."""
    config, log = partition.config, partition.log
    if _min_lag_ms(partition) or config.max_compaction_lag_ms != INT64_MAX:
        return None
    return config, log.compaction.first_dirty_offset, log.log_start_offset, log.segments[-1], partition.high_watermark


class _Pace:
    """Slows the cleaner's thread down, to the rate limit and for the sake of busy clients, and tells it to stop."""

    def __init__(self, wake: Mailbox[None], config: Current[BrokerConfig], clock: Clock, counters: Counters) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = wake
        self._config = config
        self._clock = clock
        self._counters = counters
        self._limit = RateLimit()
        self._backoff = ClientBackoff()
        self._cancelled = True
        self._waits = False
        self._may_rest = True
        self._unwanted: Callable[[], bool] = bool

    def begin(self, unwanted: Callable[[], bool], *, may_rest: bool) -> None:
        """Loop: a run begins, which is to end early once `unwanted`."""
        self._cancelled, self._unwanted, self._may_rest = False, unwanted, may_rest
        self._backoff.begin(self._served(), self._clock.monotonic_s())

    def cancel(self) -> None:
        """Loop: the run is over, or is to be."""
        self._cancelled = True
        if self._waits:
            self._wake.put(None)

    def cancelled(self) -> bool:
        """Thread: whether to stop."""
        return self._cancelled or self._unwanted()

    def spend(self, size_bytes: int) -> None:
        """Thread: this many bytes were read or written; wait as the limit and busy clients ask."""
        limit, now_s = self._config.now.cleaner.max_io_bytes_per_s, self._clock.monotonic_s()
        pause_s = self._backoff.pause_s(self._served(), now_s) if self._may_rest else 0.0
        wait_s = max(self._limit.spend(size_bytes, limit, now_s), pause_s)
        if wait_s > 0:
            self._wait(wait_s)
            now_s = self._clock.monotonic_s()
        self._backoff.go_on(now_s)

    def _served(self) -> Served:
        counters = self._counters
        return Served(counters.read_bytes, counters.appended_bytes, counters.appended_batches)

    def _wait(self, wait_s: float) -> None:
        # `cancel` sets its flag first and then looks at this one, so one of the two sees the other. A wait that ends
        # early, by an older wake-up, is made up for by the next one.
        self._waits = True
        if not self._cancelled:
            # The wait is the loop's, so that it is simulated with it.
            self._loop.call_soon_threadsafe(self._loop.call_later, wait_s, self._wake.put, None)
            self._wake.get()
        self._waits = False
