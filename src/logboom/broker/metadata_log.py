"""The metadata log: facts made durable, then applied.

Knows that facts are records in a log of the storage package and how an image comes out of them. What facts there are
and which may be stated is the metadata core's. Always synced, whatever streams choose.

Life: `open` off the loop gives the log and the image so far; `attach`ed to the loop's flusher it takes commits.

A start reads every record, so the log is kept short: now and then the whole image is written behind all others as one
batch, and everything before it is deleted. A crash before that batch is whole leaves the records before it, a crash
behind it leaves both; what precedes a snapshot is never applied, so either reads as the same image.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from logboom.base.errors import FormatVersionError, LogboomError, RetriableStorageError, StorageError
from logboom.base.ids import Epoch, Offset
from logboom.base.ports import Clock, Disk
from logboom.base.units import MIB
from logboom.broker.group_commit import GroupCommit
from logboom.metadata import (
    Image,
    MetadataRecord,
    SnapshotBegun,
    apply_all,
    decode,
    encode,
)
from logboom.records import Record, build_batch, iter_batches, iter_records, read_header
from logboom.storage import Damage, LogConfig, Notice, PartitionLog

# Its room is reserved ahead, so that streams can still be deleted when they have filled the disk.
_SEGMENT_BYTES: Final = 64 * MIB
_LOG_CONFIG: Final = LogConfig(
    segment_bytes=_SEGMENT_BYTES,
    segment_ms=2**62,
    preallocate_bytes=4 * MIB,
    max_decompressed_bytes=_SEGMENT_BYTES,  # a snapshot is one batch
)
_READ_BYTES: Final = MIB
_SNAPSHOT_RATIO: Final = 4
"""So many records for each living one are kept before a snapshot is taken."""


class MetadataLog:
    """See the module. One commit at a time; whoever commits holds the broker's metadata lock."""

    syncs = True

    def __init__(self, log: PartitionLog, epoch: Epoch, clock: Clock, record_count: int) -> None:
        self.log = log
        self._staged_bytes = 0
        self._record_count = record_count
        self._not_before = 0
        self._epoch = epoch
        self._clock = clock
        self._flusher: GroupCommit | None = None
        self._waiting: list[tuple[Offset, asyncio.Future[None]]] = []

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        clock: Clock,
        report: Callable[[Damage | Notice], None],
    ) -> tuple["MetadataLog", Image]:
        """Recover and replay the log; syncs a new leadership of it. Raises StorageError where it is damaged."""
        damages: list[Damage] = []

        def take(found: Damage | Notice) -> None:
            if isinstance(found, Damage):
                damages.append(found)
            report(found)

        log = PartitionLog.open(disk, directory, _LOG_CONFIG, now_ms=clock.wall_ms(), report=take)
        if damages:
            raise _damaged(damages[0])
        try:
            facts = _facts(log)
            image = apply_all(Image(), facts)
        except FormatVersionError:
            raise
        except StorageError as error:
            raise _damaged(error) from error
        epoch = Epoch(log.epochs.latest + 1)
        log.start_epoch(epoch, log.durable_end)
        log.try_save_epochs()  # on a full disk with the first commit
        return cls(log, epoch, clock, len(facts)), image

    def attach(self, flusher: GroupCommit) -> None:
        """Give it the flusher of the log dir."""
        self._flusher = flusher

    async def commit(self, records: Iterable[MetadataRecord]) -> None:
        """Return once the facts survive a power failure. Raises StorageError: they do not count."""
        records = tuple(records)
        await self._append(records)
        self._record_count += len(records)

    def is_long(self, image: Image, records_min: int) -> bool:
        """Whether a snapshot of the image would shorten the next start by much."""
        living = len(image.by_name)
        return self._record_count >= max(records_min, _SNAPSHOT_RATIO * living, self._not_before)

    async def take_snapshot(self, image: Image) -> int:
        """Write the image anew and delete all records before; how many records it took.

        `image` is what all commits so far make. Raises StorageError: then the records before are still there.
        """
        assert self._flusher is not None
        start = self.log.log_end_offset
        self._not_before = 2 * self._record_count  # should it fail
        records = tuple(image.snapshot())
        await self._append(records)
        self._record_count = len(records)
        self._not_before = 0
        gone = await self._flusher.run(partial(self.log.detach_before, start))
        await asyncio.to_thread(self.log.remove_detached, gone)
        return len(records)

    async def _append(self, records: Sequence[MetadataRecord]) -> None:
        """Append them as one batch; returns once it survives a power failure."""
        assert self._flusher is not None
        if self._flusher.failure is not None:
            raise self._flusher.failure.with_traceback(None)
        now_ms = self._clock.wall_ms()
        batch = build_batch([Record(Offset(n), now_ms, None, encode(record), ()) for n, record in enumerate(records)])
        appended = self.log.append(batch, ((0, read_header(batch)),), leader_epoch=self._epoch, now_ms=now_ms)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((Offset(appended.last_offset + 1), future))
        self._staged_bytes += len(batch)
        self._flusher.enqueue(self, len(batch))
        await future

    def drain(self) -> int:
        """`FlushTarget`: a commit stages its batch itself, so that its errors are raised to the caller."""
        size_bytes, self._staged_bytes = self._staged_bytes, 0
        return size_bytes

    def flushed(self, end: Offset) -> None:
        """`FlushTarget`."""
        for needed, future in self._waiting:
            if needed <= end and not future.done():
                future.set_result(None)
        self._waiting = [(needed, future) for needed, future in self._waiting if needed > end]

    def flush_failed(self, error: LogboomError) -> None:
        """`FlushTarget`."""
        if isinstance(error, RetriableStorageError):
            self.log.abandon_staged()
            self.flushed(self.log.durable_end)
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)


def _damaged(why: object) -> StorageError:
    return StorageError(f"the metadata log is damaged: {why} Bring the data directory back from a copy.")


def _facts(log: PartitionLog) -> list[MetadataRecord]:
    """What the log says, from the last snapshot on.

    What precedes it need not make sense: its own beginning may have been deleted.
    """
    facts: list[MetadataRecord] = []
    offset, end = log.log_start_offset, log.durable_end
    while offset < end:
        data = log.read(offset, _READ_BYTES, ceiling=end)
        assert data is not None
        assert len(data) > 0, "whole batches up to the end"
        for position, header in iter_batches(data):
            for record in iter_records(data, position, header, _SEGMENT_BYTES):
                assert record.value is not None, "a metadata record has a value"
                fact = decode(record.value)
                if isinstance(fact, SnapshotBegun):
                    facts.clear()
                facts.append(fact)
            offset = Offset(header.next_offset)
    return facts
