"""Reads one partition of `__consumer_offsets`: the last value of every key.

Values are decoded by the caller, once all are read, because only the last one of a key counts. Damaged batches are
reported and skipped: the keys in them fall back to an earlier value, after which a consumer reads some records again
and misses none.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from logboom.base.errors import CorruptBatchError, MessageTooLargeError, StorageError
from logboom.base.ids import Offset
from logboom.base.units import KIB
from logboom.broker.partition.replica import Partition
from logboom.groups import LogRecord
from logboom.records import BatchHeader, iter_batches, iter_records

_READ_BYTES: Final = 256 * KIB
_COMMIT_WAIT_S: Final = 1.0


async def latest_records(
    partition: Partition, max_decompressed_bytes: int, report: Callable[[str], None]
) -> list[LogRecord]:
    """The last record of each key, of those that were not deleted. `report` gets one sentence per damage."""
    latest: dict[bytes, bytes] = {}
    offset, end = partition.log_start_offset, partition.log_end_offset
    while offset < end:
        try:
            data = await partition.reads.read(offset, _READ_BYTES)
        except StorageError as error:
            report(f"{partition} is damaged at offset {offset}, skipped: {error}")
            offset = await _behind_damage(partition, offset, end)
            continue
        if not data:
            await _more_committed(partition, offset)
            continue
        for position, header in iter_batches(data):
            _take(latest, data, position, header, max_decompressed_bytes, report)
            offset = header.next_offset
    return [LogRecord(key, value) for key, value in latest.items()]


def _take(
    latest: dict[bytes, bytes],
    data: bytes | memoryview,
    position: int,
    header: BatchHeader,
    max_decompressed_bytes: int,
    report: Callable[[str], None],
) -> None:
    if header.is_control:
        return
    try:
        for record in iter_records(data, position, header, max_decompressed_bytes):
            if record.key is None:
                report(f"the record at offset {record.offset} has no key")
            elif record.value is None:
                latest.pop(record.key, None)
            else:
                latest[record.key] = record.value
    except (CorruptBatchError, MessageTooLargeError) as error:
        report(f"the batch at offset {header.base_offset} cannot be read, skipped: {error}")


async def _behind_damage(partition: Partition, offset: Offset, end: Offset) -> Offset:
    """The next readable offset. Found by trying one by one, since the end of a damaged batch is unknown."""
    while offset < end:
        offset = Offset(offset + 1)
        try:
            await partition.reads.read(offset, 1)
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
