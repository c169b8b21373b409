"""Writes one shard's records to its partition of `__consumer_offsets`, and keeps that partition short.

Appends are not waited for. Once the partition holds many more records than there are live keys, the live records are
appended again and everything before them is deleted, so that disk space and loading time follow the size of the state
and not the number of commits; Kafka uses key compaction for this. During such a rewrite new writes are held back: the
coordinator's state must not change between the first and the last live record, and newer records must come behind
them. A crash at any moment leaves the old records, or both copies, and either loads as the same state.
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
"""Records kept for each live one before a rewrite."""
_BATCH_RECORDS: Final = 500
_BATCH_BYTES: Final = MIB


class GroupWriter:
    """See the module. Life: created; `loaded` once the state is read; `close` when no more is written."""

    def __init__(
        self,
        find_partition: Callable[[], Partition],
        live_records: Callable[[], Iterable[LogRecord]],
        *,
        clock: Clock,
        log: FilteringBoundLogger,
        rewrite_records_min: int,
    ) -> None:
        self._find_partition = find_partition
        self._live_records = live_records
        self._clock = clock
        self._log = log
        self.rewrite_records_min = rewrite_records_min
        self._rewrite_at: int | None = None
        """The append offset from which a rewrite is due; unknown until loaded."""
        self._pending_writes = 0
        self._idle = asyncio.Event()
        self._held: deque[tuple[Sequence[LogRecord], Done]] | None = None
        self._task: asyncio.Task[None] | None = None

    def write(self, records: Sequence[LogRecord], done: Done) -> None:
        """Append records as one batch; `done` is called with None at the commit or with the error, perhaps at once."""
        if self._held is not None:
            self._held.append((records, done))
        else:
            self._append(records, done)

    def _append(self, records: Sequence[LogRecord], done: Done) -> None:
        now_ms = self._clock.wall_ms()
        batch = build_batch(Record(Offset(0), now_ms, key, value, ()) for key, value in records)
        self._pending_writes += 1
        self._idle.clear()
        answered = partial(self._answered, done)
        try:
            partition = self._find_partition()
        except LogboomError as error:
            answered(error)
        else:
            partition.append(batch, acks=-1, done=answered)

    def _answered(self, done: Done, result: AppendResult | LogboomError) -> None:
        self._pending_writes -= 1
        if self._pending_writes == 0:
            self._idle.set()
        if isinstance(result, LogboomError):
            self._log.warning("groups could not be written", reason=str(result))
            done(result)
            return
        done(None)
        if self._rewrite_at is not None and result.base_offset >= self._rewrite_at:
            self._rewrite_soon()

    # --- keeping it short ---------------------------------------------------------------------------------------

    def loaded(self, live_count: int) -> None:
        """The state is loaded, with so many live keys: keep the partition short from now on."""
        partition = self._find_partition()
        self._plan(partition, live_count)
        assert self._rewrite_at is not None
        if partition.log_end_offset >= self._rewrite_at:
            self._rewrite_soon()

    def _plan(self, partition: Partition, live_count: int) -> None:
        room = max(self.rewrite_records_min, _REWRITE_RATIO * live_count)
        self._rewrite_at = partition.log_start_offset + room

    def _rewrite_soon(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._rewrite())

    async def _rewrite(self) -> None:
        try:
            partition = self._find_partition()
            self._held = deque()
            try:
                if self._pending_writes:
                    await self._idle.wait()
                start, parts = partition.log_end_offset, await self._append_live(partition)
            finally:
                held, self._held = self._held, None
                for records, done in held:
                    self._append(records, done)
            live_count = sum(await asyncio.gather(*parts))
            await partition.deletion.delete_before(start, why="offsets")
        except LogboomError as error:
            # Nothing is lost: the old records are still there. The next attempt follows after as many more records.
            assert self._rewrite_at is not None
            self._rewrite_at += self.rewrite_records_min
            self._log.warning("the offsets stream could not be rewritten", reason=str(error))
            return
        self._plan(partition, live_count)
        self._log.info("offsets stream rewritten", start_offset=start, records=live_count)

    async def _append_live(self, partition: Partition) -> list["asyncio.Future[int]"]:
        """Append all live records; each future gives the record count of a batch once that is committed."""
        futures: list[asyncio.Future[int]] = []
        for records in _batches(self._live_records()):
            future = asyncio.get_running_loop().create_future()
            futures.append(future)
            now_ms = self._clock.wall_ms()
            batch = build_batch(Record(Offset(0), now_ms, key, value, ()) for key, value in records)
            partition.append(batch, acks=-1, done=partial(_settle, future, len(records)))
            await asyncio.sleep(0)  # connections get their turn between two batches
        return futures

    async def close(self) -> None:
        """Cancel a running rewrite; the writes that it held back are appended."""
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
        return  # the rewrite was cancelled
    if isinstance(result, LogboomError):
        future.set_exception(result)
    else:
        future.set_result(count)
