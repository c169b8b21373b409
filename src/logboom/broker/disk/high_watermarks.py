"""The checkpoint of high-water marks of one log dir: up to where a leader or a copy can be read at once after a
restart.

A mark that was true once is true for ever, so an old file only means that less can be read until the leader reports
more. So the file is replaced without a sync, and a missing or corrupt one counts as empty. Kafka's file of the same
purpose is `replication-offset-checkpoint`.

A log that ends below its mark has lost records, since a mark is saved only as far as the log was synced: a stream may
commit without syncs, and its records may go with the power although nothing is wrong with the files. Only a copy that
was cut after an unclean election may end there, too, until its mark is saved again; it is fetched again then, as any
that has lost something.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Final
from uuid import UUID

from structlog.typing import FilteringBoundLogger

from logboom.base.ids import Offset, PartitionIndex, StreamId
from logboom.base.ports import Disk
from logboom.broker.disk.data_dir import HIGH_WATERMARKS_FILE
from logboom.broker.disk.maintenance import Pause
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import ReplicaKey
from logboom.storage import frame, read_whole, replace_whole, unframe

_TAG: Final = b"LBHW"
_VERSION: Final = 2  # marks of version 1 were not limited to what was synced
_ENTRY: Final = Struct(">16siq")


def load(disk: Disk, log: FilteringBoundLogger) -> dict[ReplicaKey, Offset]:
    """The marks that were saved last; none where they cannot be read."""
    try:
        data = read_whole(disk, HIGH_WATERMARKS_FILE) or b""
    except OSError as error:
        log.warning("high-water marks not read", reason=str(error))
        return {}
    payload = unframe(_TAG, _VERSION, data)
    if payload is None or len(payload) % _ENTRY.size:
        return {}
    return {
        (StreamId(UUID(bytes=stream)), PartitionIndex(index)): Offset(mark)
        for stream, index, mark in _ENTRY.iter_unpack(payload)
    }


def save(disk: Disk, marks: Mapping[ReplicaKey, Offset]) -> None:
    """Replace the file. Raises OSError."""
    payload = b"".join([_ENTRY.pack(stream.bytes, index, mark) for (stream, index), mark in marks.items()])
    replace_whole(disk, ".", HIGH_WATERMARKS_FILE, frame(_TAG, _VERSION, payload), sync=False)


def marks_of(partitions: Iterable[Partition], of_failed: Mapping[ReplicaKey, Offset]) -> dict[ReplicaKey, Offset]:
    """The marks of partitions that have other copies: what has none is committed as far as it is durable. `of_failed`:
    those of partitions that were not opened at the start, which the next start needs, too."""
    marks = dict(of_failed)
    for partition in partitions:
        assignments = partition.stream.assignments
        if assignments and len(assignments[partition.index].holders) > 1:
            marks[partition.stream.id, partition.index] = min(partition.high_watermark, partition.log.durable_end)
    return marks


async def keep_saved(
    disk: Disk, marks: Callable[[], dict[ReplicaKey, Offset]], pause: Pause, log: FilteringBoundLogger
) -> None:
    """Save the marks after each pause in which any of them moved. Runs until it is cancelled."""
    saved: dict[ReplicaKey, Offset] = {}
    while True:
        await pause.over()
        saved = await save_if_moved(disk, marks(), saved, log)


async def save_if_moved(
    disk: Disk, marks: dict[ReplicaKey, Offset], saved: Mapping[ReplicaKey, Offset], log: FilteringBoundLogger
) -> dict[ReplicaKey, Offset]:
    """Save the marks where they are others than those that were saved last; what is saved now."""
    if marks != saved:
        try:
            await asyncio.to_thread(save, disk, marks)
        except OSError as error:
            log.warning("high-water marks not saved", reason=str(error))
            return dict(saved)
    return marks
