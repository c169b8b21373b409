"""Writes one shard's records to its partition of `__consumer_offsets`, and keeps that partition short.

Writes go out as they come and are never waited for. Once the partition holds many more records than there are keys
alive, the living ones are written anew behind all others and everything before them is deleted: loading and disk stay
in proportion to the state, not to the number of commits. New writes are held back meanwhile, from the moment the last
one under way was answered until the living records are appended, so that they lie behind them; a crash at any moment
leaves the old records, or both, and either reads as the same state.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset
from logboom.base.ports import Clock
from logboom.base.units import MIB
from logboom.broker.partition.replica import AppendResult, Partition
from logboom.groups import LogRecord
from logboom.records import Record, build_batch

Done = Callable[[LogboomError | None], None]

_REWRITE_RATIO: Final = 4
"""So many records for each living one are kept before they are written anew."""
_BATCH_RECORDS: Final = 500
_BATCH_BYTES: Final = MIB


class GroupWriter:
    """See the module. Life: made; `loaded` when the state is read; `close` when nothing is to be written any more."""

    def __init__(
        self,
        find_partition: Callable[[], Partition],
        living: Callable[[], Iterable[LogRecord]],
        *,
        clock: Clock,
        log: FilteringBoundLogger,
        rewrite_records_min: int,
    ) -> None:
        self._find_partition = find_partition
        self._living = living
        self._clock = clock
        self._log = log
        self.rewrite_records_min = rewrite_records_min
        self._rewrite_at: int | None = None
        """Offset at which the partition may be too long; unknown until loaded."""
        self._under_way = 0
        self._idle = asyncio.Event()
        self._held: deque[tuple[Sequence[LogRecord], Done]] | None = None
        self._task: asyncio.Task[None] | None = None

    def write(self, records: Sequence[LogRecord], done: Done) -> None:
        """Append records as one batch; `done` hears of the commit, or of the error, perhaps before this returns."""
        if self._held is not None:
            self._held.append((records, done))
        else:
            self._append(records, done)

    def _append(self, records: Sequence[LogRecord], done: Done) -> None:
        now_ms = self._clock.wall_ms()
        batch = build_batch(Record(Offset(0), now_ms, key, value, ()) for key, value in records)
        self._under_way += 1
        self._idle.clear()
        answered = partial(self._answered, done)
        try:
            partition = self._find_partition()
        except LogboomError as error:
            answered(error)
        else:
            partition.append(batch, acks=-1, done=answered)

    def _answered(self, done: Done, result: AppendResult | LogboomError) -> None:
        self._under_way -= 1
        if self._under_way == 0:
            self._idle.set()
        if isinstance(result, LogboomError):
            self._log.warning("groups could not be written", reason=str(result))
            done(result)
            return
        done(None)
        if self._rewrite_at is not None and result.base_offset >= self._rewrite_at:
            self._rewrite_soon()

    # --- keeping it short ---------------------------------------------------------------------------------------

    def loaded(self, living_count: int) -> None:
        """The state is known: from now on the partition is kept short."""
        partition = self._find_partition()
        self._plan(partition, living_count)
        assert self._rewrite_at is not None
        if partition.log_end_offset >= self._rewrite_at:
            self._rewrite_soon()

    def _plan(self, partition: Partition, living_count: int) -> None:
        room = max(self.rewrite_records_min, _REWRITE_RATIO * living_count)
        self._rewrite_at = partition.log_start_offset + room

    def _rewrite_soon(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._rewrite())

    async def _rewrite(self) -> None:
        try:
            partition = self._find_partition()
            self._held = deque()
            try:
                if self._under_way:
                    await self._idle.wait()
                start, parts = partition.log_end_offset, await self._append_living(partition)
            finally:
                held, self._held = self._held, None
                for records, done in held:
                    self._append(records, done)
            living_count = sum(await asyncio.gather(*parts))
            await partition.deletion.delete_before(start, why="offsets")
        except LogboomError as error:
            # Nothing is lost: the old records are still there, and the next try comes after as many more.
            assert self._rewrite_at is not None
            self._rewrite_at += self.rewrite_records_min
            self._log.warning("the offsets stream could not be written anew", reason=str(error))
            return
        self._plan(partition, living_count)
        self._log.info("offsets stream written anew", start_offset=start, records=living_count)

    async def _append_living(self, partition: Partition) -> list["asyncio.Future[int]"]:
        """Append all living records; the futures give how many each batch holds once it is committed."""
        futures: list[asyncio.Future[int]] = []
        for records in _batches(self._living()):
            future = asyncio.get_running_loop().create_future()
            futures.append(future)
            now_ms = self._clock.wall_ms()
            batch = build_batch(Record(Offset(0), now_ms, key, value, ()) for key, value in records)
            partition.append(batch, acks=-1, done=partial(_settle, future, len(records)))
            await asyncio.sleep(0)  # others have their turn between two batches
        return futures

    async def close(self) -> None:
        """Give up a rewrite that is under way; what it held back is written."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _batches(records: Iterable[LogRecord]) -> Iterable[list[LogRecord]]:
    batch: list[LogRecord] = []
    size_bytes = 0
    for record in records:
        record_bytes = len(record.key) + len(record.value or b"")
        if batch and (len(batch) >= _BATCH_RECORDS or size_bytes + record_bytes > _BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(record)
        size_bytes += record_bytes
    if batch:
        yield batch


def _settle(future: "asyncio.Future[int]", count: int, result: AppendResult | LogboomError) -> None:
    if future.done():
        return  # the rewrite was given up
    if isinstance(result, LogboomError):
        future.set_exception(result)
    else:
        future.set_result(count)
