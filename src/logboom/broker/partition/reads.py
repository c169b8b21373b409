"""Reading a partition: committed batches alone, from memory on the loop, from the disk on the readers' threads.

It knows the log, the high-water mark and what was just read; who appends, leads or waits is the partition's.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from logboom.base.errors import LogboomError, OffsetOutOfRangeError, StorageError
from logboom.base.ids import Offset
from logboom.broker.partition.read_cache import CachedRead
from logboom.broker.partition.services import PartitionServices
from logboom.storage import PartitionLog, TimedOffset

Result = TypeVar("Result")


class CommittedReads:
    """The reading half of a partition. Life: that of the partition, up to `end_reads`."""

    __slots__ = ("_read_refusal", "_reads", "_reads_done", "_services", "high_watermark", "log")

    def __init__(self, log: PartitionLog, services: PartitionServices) -> None:
        self.log = log
        self.high_watermark = Offset(0)
        self._services = services
        self._read_refusal: LogboomError | None = None
        self._reads = 0
        self._reads_done: asyncio.Future[None] | None = None

    def read_cached(self, offset: Offset, max_bytes: int) -> bytes | memoryview | None:
        """Whole batches from `offset` on, committed ones only and at least one; None where the disk might be needed.

        Nothing at the high-water mark, or between it and the log's end. Raises OffsetOutOfRangeError, StorageError for
        a damaged batch, UnknownStreamError once the stream is deleted.
        """
        if self._read_refusal is not None:
            raise self._read_refusal.with_traceback(None)
        ceiling, counters, log = self.high_watermark, self._services.counters, self.log
        if offset >= ceiling:
            return self._nothing_at(offset)
        shared = self._services.read_cache
        read = shared.find(self, offset, max_bytes, ceiling) if offset >= log.log_start_offset else None
        if read is not None:
            counters.reads_shared += 1
        else:
            goes_on = log.is_sequential(offset)
            found = self._log_read(offset, max_bytes, ceiling, cached_only=True)
            if found is None:
                return None
            read = self._share(offset, max_bytes, found, ceiling, goes_on=goes_on)
            counters.reads_cached += 1
        read.uses += 1
        counters.read_bytes += len(read.data)
        return read.data

    async def read(self, offset: Offset, max_bytes: int) -> bytes | memoryview:
        """As `read_cached`, and from the disk where it must be, without keeping the loop waiting."""
        data = self.read_cached(offset, max_bytes)
        if data is not None:
            return data
        ceiling = self.high_watermark
        found = await self._in_thread(partial(self._log_read, offset, max_bytes, ceiling, cached_only=False))
        assert found is not None
        data = found[0]
        self._services.counters.reads_disk += 1
        self._services.counters.read_bytes += len(data)
        return data

    def read_ahead(self, offset: Offset, max_bytes: int) -> None:
        """The reader at `offset` was answered: have ready what it asks for next, if it is one that goes on.

        Only what is in memory, and only behind a read that was cut by `max_bytes`: who has all there is will wait.
        """
        services, ceiling = self._services, self.high_watermark
        read = services.read_cache.find(self, offset, max_bytes, ceiling)
        if read is None or not read.goes_on or read.ceiling is not None or self._read_refusal is not None:
            return
        ahead = read.next_offset
        if services.read_cache.find(self, ahead, max_bytes, ceiling) is not None:
            return
        try:
            found = self.log.read_with_next_offset(ahead, max_bytes, ceiling=ceiling, cached_only=True)
        except (LogboomError, OSError):
            return  # who asks for it is told
        if found is not None and found[0]:
            self._share(ahead, max_bytes, found, ceiling, goes_on=True)
            services.counters.reads_ahead += 1

    def _share(
        self,
        offset: Offset,
        max_bytes: int,
        found: tuple[bytes | memoryview, Offset],
        ceiling: Offset,
        *,
        goes_on: bool,
    ) -> CachedRead:
        data, next_offset = found
        read = CachedRead(data, next_offset, ceiling if next_offset >= ceiling else None, goes_on)
        if data:
            self._services.read_cache.keep(self, offset, max_bytes, read)
        return read

    def _log_read(
        self, offset: Offset, max_bytes: int, ceiling: Offset, *, cached_only: bool
    ) -> tuple[bytes | memoryview, Offset] | None:
        try:
            return self.log.read_with_next_offset(offset, max_bytes, ceiling=ceiling, cached_only=cached_only)
        except StorageError:
            self._services.counters.damaged_reads += 1
            raise
        except OSError as error:
            self._services.counters.damaged_reads += 1
            raise StorageError(f"{self} cannot be read at offset {offset}: {error}") from error

    def _nothing_at(self, offset: Offset) -> bytes:
        if offset > self.log.log_end_offset:
            raise OffsetOutOfRangeError(f"{self} ends at {self.log.log_end_offset}, before offset {offset}")
        return b""

    async def offset_for_time(self, timestamp_ms: int) -> TimedOffset | None:
        """The first committed record that is not older than `timestamp_ms`."""
        return await self._in_thread(partial(self.log.offset_for_time, timestamp_ms, ceiling=self.high_watermark))

    async def max_timestamp(self) -> TimedOffset | None:
        """The committed record with the highest timestamp."""
        return await self._in_thread(partial(self.log.max_timestamp, self.high_watermark))

    async def _in_thread(self, function: Callable[[], Result]) -> Result:
        """Run a read on the readers' threads; the log's files stay open until it has ended."""
        if self._read_refusal is not None:
            raise self._read_refusal.with_traceback(None)
        self._reads += 1
        future = asyncio.get_running_loop().run_in_executor(self._services.readers, function)
        # Whoever waits may be cancelled; the thread is then still reading, so it is the thread's end that counts.
        future.add_done_callback(self._read_ended)
        return await asyncio.shield(future)

    def _read_ended(self, future: asyncio.Future[Any]) -> None:
        self._reads -= 1
        if not future.cancelled():
            future.exception()  # seen, also when whoever asked is gone
        if not self._reads and self._reads_done is not None and not self._reads_done.done():
            self._reads_done.set_result(None)

    def end_reads(self, error: LogboomError) -> None:
        """Answer every read with `error` from now on."""
        self._read_refusal = error
        self._services.read_cache.forget(self)

    async def reads_ended(self) -> None:
        """Return once no thread reads the log any more."""
        if self._reads:
            self._reads_done = asyncio.get_running_loop().create_future()
            await self._reads_done
