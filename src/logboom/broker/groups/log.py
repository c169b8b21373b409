"""Reads one partition of `__consumer_offsets`: the last value of every key.

Values are decoded by the caller, once all are read, because only the last one of a key counts. Where this copy of the
log is damaged and another broker has the records, the read ends: that one is to coordinate the groups. Else damaged
batches are reported and skipped: the keys in them fall back to an earlier value, after which a consumer reads some
records again and misses none.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from logboom.base.errors import (
    CorruptBatchError,
    MessageTooLargeError,
    RetriableStorageError,
    StorageError,
    UnsupportedCompressionError,
)
from logboom.base.ids import Offset
from logboom.base.units import KIB
from logboom.broker.partition.replica import Partition
from logboom.groups import LogRecord
from logboom.records import BatchHeader, iter_batches, keyed_records, record_value, records_body

_READ_BYTES: Final = 256 * KIB
_COMMIT_WAIT_S: Final = 1.0
_CUT_WAIT_S: Final = 0.05
_RECORDS_PER_TURN: Final = 1_000


async def latest_records(
    partition: Partition,
    max_decompressed_bytes: int,
    report: Callable[[str], None],
    *,
    is_elsewhere: Callable[[], bool],
) -> list[LogRecord]:
    """The last record of each key, of those that were not deleted, of all that is in the log now; waits until that is
    committed. `report` gets one sentence per damage.

    Raises StorageError for damage where `is_elsewhere` says that another broker has the records.
    """
    latest: dict[bytes, bytes] = {}
    offset, end = partition.log_start_offset, partition.log_end_offset
    while offset < end:
        try:
            data = await _read(partition, offset, _READ_BYTES)
        except StorageError as error:
            if is_elsewhere():
                raise
            report(f"{partition} is damaged at offset {offset}, skipped: {error}")
            offset = await _behind_damage(partition, offset, end)
            continue
        if not data:
            await _more_committed(partition, offset)
            continue
        for position, header in iter_batches(data):
            _take(latest, data, position, header, max_decompressed_bytes, report)
            offset = header.next_offset
        await asyncio.sleep(0)  # what lies in the page cache is read without a wait: connections get their turn
    return await _with_values(latest, report)


async def _read(partition: Partition, offset: Offset, max_bytes: int) -> bytes | memoryview:
    """Committed batches from `offset` on. While the log is being cut back, which is no damage, this waits: another one
    leads by then, and this broker is told soon. Raises as `CommittedReads.read`."""
    while True:
        try:
            return await partition.reads.read(offset, max_bytes)
        except RetriableStorageError:
            await asyncio.sleep(_CUT_WAIT_S)


async def _with_values(latest: dict[bytes, bytes], report: Callable[[str], None]) -> list[LogRecord]:
    found: list[LogRecord] = []
    for number, (key, record) in enumerate(latest.items()):
        if number % _RECORDS_PER_TURN == 0:
            await asyncio.sleep(0)
        try:
            found.append(LogRecord(key, record_value(record)))
        except CorruptBatchError as error:
            report(f"skipped a record: {error}")
    return found


def _take(
    latest: dict[bytes, bytes],
    data: bytes | memoryview,
    position: int,
    header: BatchHeader,
    max_decompressed_bytes: int,
    report: Callable[[str], None],
) -> None:
    """Note the records of a batch, whole: nearly all are superseded later on, and need not be opened any further."""
    if header.is_control:
        return
    try:
        body = records_body(data, position, header, max_decompressed_bytes)
        for delta, key, has_value, start, end in keyed_records(body, header.records_count):
            if key is None:
                report(f"the record at offset {header.base_offset + delta} has no key")
            elif has_value:
                latest[key] = body[start:end]
            else:
                latest.pop(key, None)
    except (CorruptBatchError, MessageTooLargeError, UnsupportedCompressionError) as error:
        report(f"the batch at offset {header.base_offset} cannot be read, skipped: {error}")


async def _behind_damage(partition: Partition, offset: Offset, end: Offset) -> Offset:
    """The next readable offset. Found by trying one by one, since the end of a damaged batch is unknown."""
    while offset < end:
        offset = Offset(offset + 1)
        try:
            await _read(partition, offset, 1)
        except StorageError:
            continue
        break
    return offset


async def _more_committed(partition: Partition, offset: Offset) -> None:
    """Wait until the high-water mark has passed `offset`, for at most _COMMIT_WAIT_S; the caller tries again."""
    moved = asyncio.Event()
    handle = partition.watch(moved.set)
    try:
        if partition.high_watermark <= offset:
            async with asyncio.timeout(_COMMIT_WAIT_S):
                await moved.wait()
    except TimeoutError:
        return
    finally:
        partition.unwatch(handle)
