"""The metadata log of a single broker: the catalog's commit port on a local log. Every commit is synced.

Life: `open` off the loop recovers the log and gives the image that its records make; `attach`ed to the flusher of the
log dir it takes commits; the owner closes its `log` at the end.

A start reads every record, so the log is kept short: once it holds many more records than the image needs, the image is
appended as one batch (a snapshot) and everything before it is deleted. A crash before the batch is complete leaves the
old records, a crash after it leaves both. Replay starts at the last snapshot, so both give the same image.
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
from logboom.broker.raft.migration import OLD_SEGMENT_BYTES, old_log_damaged, read_old_log
from logboom.metadata import (
    Image,
    MetadataRecord,
    apply_all,
    encode,
)
from logboom.records import Record, build_batch, read_header
from logboom.storage import Damage, LogConfig, Notice, PartitionLog

# Disk space is reserved ahead, so that streams can still be deleted after they have filled the disk.
_LOG_CONFIG: Final = LogConfig(
    segment_bytes=OLD_SEGMENT_BYTES,
    segment_ms=2**62,
    preallocate_bytes=4 * MIB,
    max_decompressed_bytes=OLD_SEGMENT_BYTES,  # a snapshot is one batch
)
_SNAPSHOT_RATIO: Final = 4
"""Records kept for each one that a snapshot would hold, before a snapshot is taken."""


class MetadataLog:
    """See the module. `catalog.CommitPort`, and `group_commit.FlushTarget`. One call at a time."""

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
        """Recover and replay the log, and begin a new leader epoch of it, durably.

        Raises StorageError where it is damaged, FormatVersionError where a newer version wrote it.
        """
        damages: list[Damage] = []

        def take(found: Damage | Notice) -> None:
            if isinstance(found, Damage):
                damages.append(found)
            report(found)

        log = PartitionLog.open(disk, directory, _LOG_CONFIG, now_ms=clock.wall_ms(), report=take)
        if damages:
            raise old_log_damaged(damages[0])
        try:
            records = read_old_log(log)
            image = apply_all(Image(), records)
        except FormatVersionError:
            raise
        except StorageError as error:
            raise old_log_damaged(error) from error
        epoch = Epoch(log.epochs.latest + 1)
        log.epochs.begin(epoch, log.durable_end)
        log.epochs.try_save()  # on a full disk it is saved with the first commit
        return cls(log, epoch, clock, len(records)), image

    def attach(self, flusher: GroupCommit) -> None:
        """Set the group commit of the log dir, before the first commit."""
        self._flusher = flusher

    async def commit(self, records: Iterable[MetadataRecord]) -> None:
        """`CommitPort`."""
        records = tuple(records)
        await self._append(records)
        self._record_count += len(records)

    def is_long(self, image: Image, records_min: int) -> bool:
        """`CommitPort`."""
        return self._record_count >= max(records_min, _SNAPSHOT_RATIO * image.snapshot_record_count, self._not_before)

    async def take_snapshot(self, image: Image) -> int:
        """`CommitPort`."""
        assert self._flusher is not None
        start = self.log.log_end_offset
        self._not_before = 2 * self._record_count  # for the case that this attempt fails
        records = tuple(image.snapshot())
        await self._append(records)
        self._record_count = len(records)
        self._not_before = 0
        detached = await self._flusher.run(partial(self.log.detach_before, start))
        await asyncio.to_thread(detached.remove)
        return len(records)

    async def _append(self, records: Sequence[MetadataRecord]) -> None:
        """Append the records as one batch; returns once it survives a power failure."""
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
