"""Which messages a partition has, by their ids: loaded from the log when one is asked for, then kept with each append.

Everything is in the log, so a leader knows what the one before it knew: the first message with an id in a leadership
has the newest part of the log read (`id_scan`), while the partition's appends wait. Nothing is read, kept or looked at
where no message has an id. Ids count whoever wrote them; batches that came through Kafka are searched for them while
there is a window.

Knows the log, the clock and reader threads; not the queue that waits, which is told by `resume`. On the loop.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from logboom.base.errors import LogboomError, OffsetOutOfRangeError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import Clock
from logboom.broker.metrics import Counters
from logboom.broker.partition.id_memory import IdMemory
from logboom.broker.partition.id_scan import IdLimits, IdReader, IdScan, Moment
from logboom.broker.partition.id_window import IdWindow
from logboom.broker.partition.reader_threads import ReadSoon
from logboom.broker.settled_clock import SettledClock
from logboom.records import MESSAGE_ID, header_values, records_body
from logboom.storage import Batch

_UNUSED_S: Final = 300.0
"""A window is forgotten where no message with an id came for this long, and for its own length."""


class Log(Protocol):
    """The part of a `storage.PartitionLog` that ids are loaded from."""

    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def written_end(self) -> Offset: ...
    @property
    def reader(self) -> IdReader: ...


class MessageIds:
    """See the module. Life: that of the partition."""

    __slots__ = (
        "_clock",
        "_counters",
        "_limits",
        "_log",
        "_memory",
        "_read_soon",
        "_resume",
        "_scan",
        "_settled_clock",
        "_used_s",
        "_window",
        "failure",
    )

    def __init__(
        self,
        log: Log,
        limits: IdLimits,
        *,
        clock: Clock,
        settled_clock: SettledClock,
        counters: Counters,
        memory: IdMemory,
        read_soon: ReadSoon,
        resume: Callable[[], None],
    ) -> None:
        """`resume` has the partition's appends go on that have waited for `ready`."""
        self.failure: LogboomError | None = None
        """Why ids are not known although this is `ready`: the log could not be read."""
        self._log = log
        self._limits = limits
        self._clock = clock
        self._settled_clock = settled_clock
        self._counters = counters
        self._memory = memory
        self._read_soon = read_soon
        self._resume = resume
        self._window: IdWindow | None = None
        self._scan: IdScan | None = None
        self._used_s = 0.0

    def configure(self, limits: IdLimits) -> None:
        """Take the stream's settings, which may have changed."""
        if limits != self._limits:
            self._limits = limits
            self.forget()

    # --- deciding -----------------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether it is known which of the next messages are there already.

        Where it is not, the log is being read, or cannot be before what is staged is `written`. `resume` is called when
        `ready` is to be asked again.
        """
        if self._scan is not None:
            return False
        end, now_s = self._log.log_end_offset, self._clock.monotonic_s()
        self._used_s = now_s
        if self._window is not None and self._window.end == end:
            self._window.expire(now_s)
            return True
        if self.failure is not None:
            return True  # `settled` forgets it, and the next message has the log read again
        self.forget()
        if self._log.written_end >= end:
            self._begin_scan(end, now_s)
        return False

    def settled(self) -> None:
        """The messages for which this was `ready` are staged, or refused."""
        self.failure = None

    @property
    def deduplicates(self) -> bool:
        """Whether the stream takes a message of an id that it has for a duplicate."""
        return self._limits.window_ms > 0

    def find(self, message_id: bytes) -> Offset | None:
        """Where the message of this id is, if it is known. This is `ready`."""
        return None if self._window is None else self._window.find(message_id)

    @property
    def last_id(self) -> bytes | None:
        """The id of the last record in the log, if it has one. This is `ready`."""
        return None if self._window is None else self._window.last_id

    # --- what is appended ---------------------------------------------------------------------------------------

    @property
    def follows(self) -> bool:
        """Whether it is to be told of what is appended."""
        return self._window is not None

    def appended(self, batches: Sequence[Batch], base_offset: Offset) -> None:
        """These batches of clients were staged one behind the other."""
        if self._clock.monotonic_s() - self._used_s > max(_UNUSED_S, self._limits.window_s):
            self.forget()
            return
        for buffer, header in batches:
            body = records_body(buffer, 0, header, self._limits.max_decompressed_bytes)
            ids = [
                (base_offset + delta, one) for delta, _, one in header_values(body, header.records_count, MESSAGE_ID)
            ]
            end = Offset(base_offset + header.last_offset_delta + 1)
            self.noted(ids, base_offset, end)
            base_offset = end

    def noted(self, ids: Iterable[tuple[int, bytes]], base_offset: Offset, end: Offset) -> None:
        """Records with these ids were staged, by offset, and others, from `base_offset` up to below `end`."""
        window = self._window
        if window is None or window.end != base_offset:
            self.forget()  # what was staged before was taken back
            return
        now_s = self._clock.monotonic_s()
        for offset, message_id in ids:
            window.note(message_id, offset, now_s)
        window.extend(end, now_s)
        self._memory.grown(self, window)

    def written(self) -> None:
        """More of the log can be read, or what was staged is gone."""
        if self._scan is None:
            self._resume()

    def forget(self) -> None:
        """What was known may not be so any more, or nobody asks for it."""
        self._window = self._scan = self.failure = None
        self._memory.released(self)

    # --- reading ------------------------------------------------------------------------------------------------

    def _begin_scan(self, end: Offset, now_s: float) -> None:
        log, now = self._log, Moment(self._settled_clock.now_ms(), now_s)
        self._scan = scan = IdScan(log.reader, log.log_start_offset, end, now, self._limits, self._memory)
        self._go_on(scan)

    def _go_on(self, scan: IdScan) -> None:
        self._memory.lend(self)
        self._read_soon(scan.read_slice).add_done_callback(partial(self._slice_ended, scan))

    def _slice_ended(self, scan: IdScan, future: "asyncio.Future[bool]") -> None:
        error = None if future.cancelled() else future.exception()
        if self._scan is not scan or future.cancelled():
            return
        self._memory.grown(self, scan.window)
        if error is None and not future.result():
            self._go_on(scan)
            return
        self._scan = None
        self._counters.message_ids_read_bytes += scan.read_bytes
        self._counters.message_ids_reloads_cut += scan.is_cut
        if error is None:
            self._window = scan.window
        else:
            self._failed(error)
        self._resume()

    def _failed(self, error: BaseException) -> None:
        self._memory.released(self)
        if isinstance(error, OffsetOutOfRangeError):
            return  # the log begins later now: what there is to read is looked for again
        self.failure = error if isinstance(error, LogboomError) else StorageError(f"The log was not read: {error}.")
