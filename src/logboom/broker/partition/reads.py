"""Reading a partition: committed batches alone, from memory on the loop, from the disk on the readers' threads.

Knows the log, the high-water mark and the read cache; nothing of appends, leadership or requests.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from logboom.base.errors import LogboomError, OffsetOutOfRangeError, RetriableStorageError, StorageError, with_cause
from logboom.base.ids import Offset
from logboom.broker.metrics import Counters
from logboom.broker.partition.read_cache import CachedRead, ReadCache
from logboom.broker.partition.reader_threads import ReaderThreads
from logboom.records import holds_records
from logboom.storage import PartitionLog, TimedOffset

Result = TypeVar("Result")

_GAPS_ON_LOOP_MAX: Final = 8
"""Reads that find no record, one after the other, before a thread goes on with them."""


class CommittedReads:
    """The reads of one partition. Life: that of the partition, up to `close`. On the loop."""

    __slots__ = (
        "_cache",
        "_closed",
        "_counters",
        "_ended",
        "_log",
        "_name",
        "_reader",
        "_running",
        "_threads",
        "high_watermark",
    )

    def __init__(
        self, name: str, log: PartitionLog, *, cache: ReadCache, threads: ReaderThreads, counters: Counters
    ) -> None:
        self.high_watermark = Offset(0)
        """Everything below is committed. Moved by the leadership."""
        self._name = name
        self._log = log
        self._reader = log.reader
        self._cache = cache
        self._threads = threads
        self._counters = counters
        self._closed: LogboomError | None = None
        self._running = 0
        self._ended: asyncio.Future[None] | None = None

    # --- batches ------------------------------------------------------------------------------------------------

    def read_cached(self, offset: Offset, max_bytes: int) -> bytes | memoryview | None:
        """Whole batches from `offset` on, committed ones only and at least one; None where the disk might be needed.

        Nothing at the high-water mark, or between it and the log's end. Raises OffsetOutOfRangeError, StorageError for
        a damaged batch, UnknownStreamError once the stream is deleted.
        """
        self._check_open()
        ceiling, counters, log = self.high_watermark, self._counters, self._log
        if offset >= ceiling:
            return self._nothing_at(offset)
        read = self._cache.find(self, offset, max_bytes, ceiling) if offset >= log.log_start_offset else None
        if read is not None:
            counters.reads_shared += 1
        else:
            sequential = self._reader.is_sequential(offset)
            found = self._read_log(offset, max_bytes, ceiling, cached_only=True)
            if found is None:
                return None
            read = self._keep(offset, max_bytes, found, ceiling, sequential=sequential)
            counters.reads_cached += 1
        read.uses += 1
        counters.read_bytes += len(read.data)
        return read.data

    async def read(self, offset: Offset, max_bytes: int) -> bytes | memoryview:
        """As `read_cached`, and on a thread where the disk is needed."""
        data = self.read_cached(offset, max_bytes)
        if data is not None:
            return data
        ceiling = self.high_watermark
        self._check_open()
        found = await self.until_ended(
            self._threads.read(partial(self._read_log, offset, max_bytes, ceiling, cached_only=False))
        )
        assert found is not None
        data = found[0]
        self._counters.reads_disk += 1
        self._counters.read_bytes += len(data)
        return data

    def read_ahead(self, offset: Offset, max_bytes: int) -> None:
        """The reader at `offset` was answered: have ready what it asks for next, if it reads sequentially.

        Only what is in memory, and only behind a read that was cut by `max_bytes`: a reader that has all there is waits
        for more, and what comes next is not there yet.
        """
        cache, ceiling = self._cache, self.high_watermark
        read = cache.find(self, offset, max_bytes, ceiling)
        if read is None or not read.sequential or read.ceiling is not None or self._closed is not None:
            return
        ahead = read.next_offset
        if cache.find(self, ahead, max_bytes, ceiling) is not None:
            return
        try:
            found = self._find(ahead, max_bytes, ceiling, cached_only=True)
        except (LogboomError, OSError):
            return  # the read itself will meet it again, and answers its client with the error
        if found is not None and found[0]:
            self._keep(ahead, max_bytes, found, ceiling, sequential=True)
            self._counters.reads_ahead += 1

    def _keep(
        self,
        offset: Offset,
        max_bytes: int,
        found: tuple[bytes | memoryview, Offset],
        ceiling: Offset,
        *,
        sequential: bool,
    ) -> CachedRead:
        data, next_offset = found
        read = CachedRead(data, next_offset, ceiling if next_offset >= ceiling else None, sequential)
        if data:
            self._cache.keep(self, offset, max_bytes, read)
        return read

    def _read_log(
        self, offset: Offset, max_bytes: int, ceiling: Offset, *, cached_only: bool
    ) -> tuple[bytes | memoryview, Offset] | None:
        try:
            return self._find(offset, max_bytes, ceiling, cached_only=cached_only)
        except RetriableStorageError:
            raise  # the log is being cut back, which is no damage
        except StorageError:
            self._counters.damaged_reads += 1
            raise
        except OSError as error:
            self._counters.damaged_reads += 1
            raise with_cause(StorageError(f"{self._name} cannot be read at offset {offset}: {error}"), error) from error

    def _find(
        self, offset: Offset, max_bytes: int, ceiling: Offset, *, cached_only: bool
    ) -> tuple[bytes | memoryview, Offset] | None:
        """As `LogReader.read_with_next_offset`, but with a record where one follows below the ceiling."""
        found = self._reader.read_with_next_offset(offset, max_bytes, ceiling=ceiling, cached_only=cached_only)
        if found is None or holds_records(found[0]):
            return found
        return self._read_past_gaps(found, max_bytes, ceiling, cached_only=cached_only)

    def _read_past_gaps(
        self, found: tuple[bytes | memoryview, Offset], max_bytes: int, ceiling: Offset, *, cached_only: bool
    ) -> tuple[bytes | memoryview, Offset] | None:
        """What follows batches without records, which compaction leaves for offsets that are gone.

        Clients take a batch above the offset that they asked for, as from any compacted topic. Not so a reply without
        records: librdkafka then doubles what it asks for, and after ten such replies in a row says that a message is
        too large. Only at the ceiling they get one, since their position has to move up to it.
        """
        segments = 0
        while found[1] < ceiling and not holds_records(found[0]):
            segments += 1
            if cached_only and segments > _GAPS_ON_LOOP_MAX:
                return None
            try:
                behind = self._reader.read_with_next_offset(
                    found[1], max_bytes, ceiling=ceiling, cached_only=cached_only
                )
            except StorageError:
                return found  # the damage lies behind it: the next read meets that, and tells its offset
            if behind is None:
                return None
            found = behind
        return found

    def _nothing_at(self, offset: Offset) -> bytes:
        if offset > self._log.log_end_offset:
            raise OffsetOutOfRangeError(f"{self._name} ends at {self._log.log_end_offset}, before offset {offset}")
        return b""

    # --- times --------------------------------------------------------------------------------------------------

    async def offset_for_time(self, timestamp_ms: int) -> TimedOffset | None:
        """The first committed record that is not older than `timestamp_ms`."""
        return await self.in_thread(partial(self._reader.offset_for_time, timestamp_ms, ceiling=self.high_watermark))

    async def max_timestamp(self) -> TimedOffset | None:
        """The committed record with the highest timestamp."""
        return await self.in_thread(partial(self._reader.max_timestamp, self.high_watermark))

    def load_index_soon(self) -> None:
        """Let a thread load the index of the last segment, if appends have got ahead of it. Does not wait."""
        if self._reader.index_is_behind and self._closed is None and not self._running:
            self._tracked(self._threads.run(self._reader.load_index))

    # --- threads ------------------------------------------------------------------------------------------------

    def start(self, function: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Run a read on the readers' threads, whose end the caller does not await; as `in_thread` in all else."""
        self._check_open()
        return self._tracked(self._threads.read(function))

    async def in_thread(self, function: Callable[[], Result]) -> Result:
        """Run a search or other long work on the readers' threads."""
        return await self.on_threads(self._threads, function)

    async def on_threads(self, threads: ReaderThreads, function: Callable[[], Result]) -> Result:
        """The same on other threads."""
        self._check_open()
        return await self.until_ended(threads.run(function))

    async def until_ended(self, future: "asyncio.Future[Result]") -> Result:
        """The result of work on a thread; until it has ended the log's files stay where they are."""
        # The awaiting task may be cancelled while the thread goes on reading: it is the thread's end that counts.
        try:
            result = await asyncio.shield(self._tracked(future))
        except LogboomError:
            self._check_open()
            raise
        self._check_open()  # the stream may have been deleted meanwhile, and another one may have its name
        return result

    def _tracked(self, future: "asyncio.Future[Result]") -> "asyncio.Future[Result]":
        self._running += 1
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, future: asyncio.Future[Any]) -> None:
        self._running -= 1
        if not future.cancelled():
            future.exception()  # retrieved, so that asyncio does not complain where the awaiting task is gone
        if not self._running and self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed.with_traceback(None)

    def forget(self) -> None:
        """Records that were read before are in the log no more: keep nothing of them."""
        self._cache.forget(self)

    def close(self, error: LogboomError) -> None:
        """Answer every read with `error` from now on."""
        self._closed = error
        self._cache.forget(self)

    @property
    def is_idle(self) -> bool:
        """Whether no thread reads the log."""
        return not self._running

    async def ended(self) -> None:
        """Return once no thread reads the log any more."""
        if self._running:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended
