"""Deleting the oldest records of a partition: for a client, for retention, and for the broker's own streams.

The start of the log moves first, durably and where alone its files may change; files below it are removed afterwards,
beside everything else. Knows the log, the high-water mark and the group commit; not when retention is due.
"""

import asyncio
from functools import partial
from typing import Final

from logboom.base.errors import LogboomError, OffsetOutOfRangeError, OutcomeUnknownError, RetriableStorageError
from logboom.base.ids import Offset
from logboom.broker.group_commit import FlushTarget
from logboom.broker.partition.reads import CommittedReads
from logboom.broker.partition.role import Role
from logboom.broker.partition.services import PartitionServices
from logboom.metadata import StreamConfig
from logboom.storage import DetachedSegments, PartitionLog, Retention

_TIMEOUT_S: Final = 30.0
"""Kafka's own clients give as long."""


class RecordDeletion:
    """See the module. Life: that of the partition. On the loop."""

    __slots__ = ("_log", "_reads", "_role", "_services", "_target")

    def __init__(
        self,
        target: FlushTarget,
        log: PartitionLog,
        role: Role,
        reads: CommittedReads,
        services: PartitionServices,
    ) -> None:
        self._target = target
        self._log = log
        self._role = role
        self._reads = reads
        self._services = services

    async def delete_records(self, offset: int, timeout_s: float = _TIMEOUT_S) -> Offset:
        """Delete committed records below `offset` (-1: all of them) for a client; the log start offset after it.

        Returns once all in-sync replicas have deleted them, and there are enough of those for a commit: no other leader
        brings them back then (KIP-107). Raises NotLeaderError, OffsetOutOfRangeError above the high-water mark,
        StorageError; OutcomeUnknownError where they are deleted here, and not everywhere after `timeout_s` seconds.
        """
        self._role.check_leads()
        high_watermark = self._reads.high_watermark
        wanted = high_watermark if offset == -1 else offset
        if not 0 <= wanted <= high_watermark:
            raise OffsetOutOfRangeError(
                f"records of {self._target} can be deleted up to offset {high_watermark}, not to {offset}"
            )
        log, start = self._log, self._log.log_start_offset
        if wanted > start or (wanted == start and not log.start.is_known):
            await self.delete_before(Offset(wanted), why="records")
        await self._deleted_everywhere(Offset(wanted), timeout_s)
        return log.log_start_offset

    async def _deleted_everywhere(self, offset: Offset, timeout_s: float) -> None:
        role, epoch, news = self._role, self._role.epoch, asyncio.Event()
        handle = role.leader.watchers.add(news.set)
        try:
            async with asyncio.timeout(timeout_s):
                while not role.leader.has_deleted(offset):
                    await news.wait()
                    news.clear()
                    role.check_leads()
                    role.check_epoch(epoch)
        except TimeoutError:
            raise OutcomeUnknownError(
                f"records of {self._target} below offset {offset} are deleted on this broker, and not yet on all that "
                "may lead after it"
            ) from None
        finally:
            role.leader.watchers.remove(handle)

    async def delete_before(self, offset: Offset, *, why: str) -> int:
        """Move the log start up to a committed offset and remove what lies below; how many segments went.

        `why` names the counter. Returns once the new start survives a power failure and the files are gone. Raises
        StorageError.
        """
        if self._role.failure is not None:
            raise self._role.failure.with_traceback(None)
        detached = await self._services.flusher.run(partial(self._detach_before, offset))
        self._role.leader.log_start_moved()
        segments = detached.segments
        if segments:
            counters = self._services.counters
            counters.segments_deleted[why] += len(segments)
            counters.segment_bytes_deleted[why] += sum(segment.size_bytes for segment in segments)
            await self._reads.in_thread(detached.remove)
        return len(segments)

    async def confirm_start(self, start: Offset) -> None:
        """No replica has records below the log start, so they count as deleted from now on. Logs failures."""
        try:
            if start == self._log.log_start_offset:
                await self.delete_before(start, why="leader")
        except LogboomError as error:
            self._services.log.warning("the log start is not confirmed", partition=str(self._target), reason=str(error))

    def _detach_before(self, offset: Offset) -> DetachedSegments:
        """On the flusher's thread."""
        # Streams with flush=none may have committed what is not synced yet, and the start never passes the durable end.
        if self._log.durable_end < offset:
            self._log.flush(sync=True)
        if self._log.durable_end < offset:  # a copy may have been cut back meanwhile
            raise RetriableStorageError(f"{self._target} ends at {self._log.durable_end}, before offset {offset}")
        return self._log.detach_before(offset)

    async def enforce_retention(self, config: StreamConfig) -> int:
        """Remove old segments as the settings ask, committed ones only; how many went. Raises StorageError.

        On a leader alone: a copy that began above its leader would send readers back and forth between the two. It
        deletes what its leader has deleted (`follower`).
        """
        if not self._role.leads:
            return 0
        log, reads, now_ms = self._log, self._reads, self._services.settled_clock.now_ms()
        retention = Retention(None, None, None)
        if config.deletes:
            retention = Retention(
                _limit(config.retention_ms), _limit(config.retention_bytes), _limit(config.retention_messages)
            )
        if not retention.is_limited and log.log_start_offset <= log.segments[0].base:
            return 0
        end = log.log_end_offset
        all_expired = await reads.in_thread(partial(log.reader.expired_to_the_end, retention, now_ms=now_ms))
        # Only whole segments are removed, and the last one is still written to: a stream that fell silent would keep it
        # for ever. Where even its newest record is too old it ends here, unless something was appended meanwhile.
        unchanged = reads.high_watermark == end == log.log_end_offset
        if all_expired and unchanged and self._role.failure is None and log.roll():
            await self._services.flusher.flush(self._target)
        # The search may read indexes from the disk, so it runs on a reader's thread; committed segments do not change.
        find = partial(log.reader.retained_from, retention, now_ms=now_ms, high_watermark=reads.high_watermark)
        start, first_end = await reads.in_thread(find), log.segments[0].end
        if first_end is None or first_end > start:
            return 0
        return await self.delete_before(start, why="retention")


def _limit(value: int) -> int | None:
    """A limit as Kafka writes it: -1 is none."""
    return None if value < 0 else value
