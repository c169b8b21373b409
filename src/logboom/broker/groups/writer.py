"""Writes one shard's records to its partition of `__consumer_offsets`.

Appends are not waited for. The partition is kept short by key compaction, as any compacted stream. Compaction stops at
damage, and no client may delete these records. So a start that finds damage in a partition that has grown long appends
what could be read again and deletes everything before it. A crash at any moment leaves the old records, or both copies,
and either loads as the same state.
"""

import asyncio
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

_BATCH_RECORDS: Final = 500
_BATCH_BYTES: Final = MIB
_LONG_SEGMENTS: Final = 4
"""A damaged partition of more bytes than so many segments have is rewritten. A shorter one is left as it is: perhaps a
later start can read what this one could not."""


class GroupWriter:
    """See the module. Life: that of the shard."""

    def __init__(self, find_partition: Callable[[], Partition], *, clock: Clock, log: FilteringBoundLogger) -> None:
        self._find_partition = find_partition
        self._clock = clock
        self._log = log

    def write(self, records: Sequence[LogRecord], done: Done) -> None:
        """Append records as one batch; `done` is called with None at the commit or with the error, perhaps at once."""
        answered = partial(self._answered, done)
        try:
            partition = self._find_partition()
        except LogboomError as error:
            answered(error)
        else:
            partition.append(self._batch(records), acks=-1, done=answered)

    def _batch(self, records: Sequence[LogRecord]) -> bytearray:
        now_ms = self._clock.wall_ms()
        return build_batch(Record(Offset(0), now_ms, key, value, ()) for key, value in records)

    def _answered(self, done: Done, result: AppendResult | LogboomError) -> None:
        if isinstance(result, LogboomError):
            self._log.warning("groups could not be written", reason=str(result))
            done(result)
            return
        done(None)

    async def mend(self, records: Sequence[LogRecord]) -> None:
        """The partition is damaged, and these are the latest records that could be read: if it has grown long, write
        them again and delete everything before them. Nothing else may be written meanwhile. An error is logged: nothing
        is deleted then, and the next start tries again."""
        try:
            partition = self._find_partition()
            start = partition.log_end_offset
            if partition.log.size_bytes <= _LONG_SEGMENTS * partition.config.segment_bytes:
                return
            for some in _batches(records):
                done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                partition.append(self._batch(some), acks=-1, done=partial(_settle, done))
                await done
            await partition.deletion.delete_before(start, why="damage")
        except LogboomError as error:
            self._log.warning("the offsets stream could not be rewritten", reason=str(error))
            return
        self._log.warning("offsets stream rewritten without what is damaged", start_offset=start, records=len(records))


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


def _settle(future: "asyncio.Future[None]", result: AppendResult | LogboomError) -> None:
    if future.done():
        return  # the broker stops, and nobody waits any more
    if isinstance(result, LogboomError):
        future.set_exception(result)
    else:
        future.set_result(None)
