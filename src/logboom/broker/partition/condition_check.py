"""The conditions of one partition's appends: whether they can be decided now, and whether they hold.

A condition is decided by the latest record of its key, which is looked for among the newest records in memory
(`key_window`), and below them by a scan of the log on a reader thread. While a scan runs the appends of the partition
wait, so what it finds is what there is. Records are remembered from the first condition on, as long as there are more
of them; a partition that never sees one remembers nothing.

Knows the log, the window and reader threads; not the queue that waits, which is told by `resume`. On the loop.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from logboom.base.dynamic import Current
from logboom.base.errors import LogboomError, OffsetOutOfRangeError, StorageError
from logboom.base.ids import Offset, StreamId
from logboom.base.ports import Clock
from logboom.base.quantities import format_size_bytes
from logboom.broker.config import BrokerConfig
from logboom.broker.metrics import Counters
from logboom.broker.partition.condition_scan import ConditionScan, ScanLimits
from logboom.broker.partition.conditions import Condition, ConditionalBatch, Latest, Span, refusal
from logboom.broker.partition.key_window import KeyWindow
from logboom.broker.partition.reader_threads import ReadSoon
from logboom.broker.partition.slices import SliceReader
from logboom.records import KeyedRecord, keyed_records, records_body
from logboom.storage import Batch

_UNUSED_S: Final = 300.0
"""A window is forgotten where no condition came for this long."""
_NOTED_RECORDS_MAX: Final = 10_000
"""A batch of more records is not looked at record by record on the loop: the window starts over behind it."""
_SHARE: Final = 4
"""One window may have one part in this many of the memory for all."""


class WindowMemory:
    """The memory of all windows of a broker. The one that was not used for longest goes first. Life: the broker's."""

    def __init__(self, config: Current[BrokerConfig]) -> None:
        self._config = config
        self._windows: OrderedDict[ConditionCheck, int] = OrderedDict()

    @property
    def held_bytes(self) -> int:
        """Of all windows, about."""
        return sum(self._windows.values())

    @property
    def window_limit_bytes(self) -> int:
        """What one window may take."""
        return self._limit_bytes // _SHARE

    @property
    def _limit_bytes(self) -> int:
        return self._config.now.conditions.memory_bytes

    def used(self, check: "ConditionCheck", size_bytes: int) -> None:
        """A window was used, and takes so much memory now."""
        self._windows[check] = size_bytes
        self._windows.move_to_end(check)
        self._make_room()

    def grown(self, check: "ConditionCheck", size_bytes: int) -> None:
        """A window takes so much memory now, although no condition came."""
        self._windows[check] = size_bytes
        self._make_room()

    def _make_room(self) -> None:
        windows = self._windows
        while len(windows) > 1 and self.held_bytes > self._limit_bytes:
            next(iter(windows)).forget()

    def released(self, check: "ConditionCheck") -> None:
        """A window is no more. Idempotent."""
        self._windows.pop(check, None)


class Log(Protocol):
    """The part of a `storage.PartitionLog` that conditions are decided by."""

    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def written_end(self) -> Offset: ...
    @property
    def reader(self) -> SliceReader: ...


class ConditionCheck:
    """See the module. Life: that of the partition."""

    __slots__ = (
        "_clock",
        "_config",
        "_counters",
        "_deciding",
        "_log",
        "_memory",
        "_read_soon",
        "_resume",
        "_running",
        "_scan",
        "_stream_id",
        "_used_s",
        "_window",
    )

    def __init__(
        self,
        stream_id: StreamId,
        log: Log,
        *,
        config: Current[BrokerConfig],
        clock: Clock,
        counters: Counters,
        memory: WindowMemory,
        read_soon: ReadSoon,
        resume: Callable[[], None],
    ) -> None:
        """`resume` has the partition's appends go on that have waited for `ready`."""
        self._stream_id = stream_id
        self._log = log
        self._config = config
        self._clock = clock
        self._counters = counters
        self._memory = memory
        self._read_soon = read_soon
        self._resume = resume
        self._window: KeyWindow | None = None
        self._scan: ConditionScan | None = None
        self._running = False
        self._deciding = False
        """Whether batches that are `ready` are being appended: nothing that they need is forgotten."""
        self._used_s = 0.0

    # --- deciding -----------------------------------------------------------------------------------------------

    def ready(self, batches: Iterable[ConditionalBatch]) -> bool:
        """Whether the conditions of these batches, which come next in the log, can be decided now.

        Where they cannot, what is missing is being read, or cannot be before what is staged is `written`. `resume` is
        called when `ready` is to be asked again.
        """
        if self._running:
            return False
        window, start = self._current_window(), self._log.log_start_offset
        span = Span(self._stream_id, start, self._log.log_end_offset)
        unknown: dict[bytes, Offset] = {}
        for condition in (condition for batch in batches for condition in batch.conditions):
            bound = condition.bound(start)
            if bound < window.start and condition.misfit(span) is None:
                unknown[condition.key] = min(bound, unknown.get(condition.key, bound))
        if unknown and self._scan is None:
            if self._log.written_end >= window.start:
                self._begin_scan(unknown, window.start)
            return False
        self._deciding, self._used_s = True, self._clock.monotonic_s()
        return True

    def refusal(self, batch: ConditionalBatch) -> LogboomError | None:
        """Why a batch must not be appended now, None if it may. All of its conditions are `ready`."""
        self._counters.conditions_compared += len(batch.conditions)
        span = Span(self._stream_id, self._log.log_start_offset, self._log.log_end_offset)
        faults: list[tuple[int, str]] = []
        too_far = False
        for condition in batch.conditions:
            fault = condition.misfit(span) or batch.own_fault(condition)
            if fault is None and not self._is_known(condition, span):
                if self._scan is not None and self._scan.failure is not None:
                    return self._scan.failure
                fault, too_far = self._too_far(condition, span), True
            fault = fault or condition.compare(self._latest(condition.key, span.start))
            if fault is not None:
                faults.append((condition.index, fault))
        if not faults:
            return None
        self._counters.conditions_failed += len(faults)
        error = refusal(faults)
        if too_far:
            error.limit = "broker.conditions.scan_max_bytes"
        return error

    def _latest(self, key: bytes, start: Offset) -> Latest | None:
        found = self._window.latest(key) if self._window is not None else None
        found = found or (self._scan.latest(key) if self._scan is not None else None)
        # Retention and DeleteRecords take records away that are still remembered here: nobody can read them any more.
        return found if found is not None and found.offset >= start else None

    def _is_known(self, condition: Condition, span: Span) -> bool:
        window, scan = self._window, self._scan
        assert window is not None
        bound = condition.bound(span.start)
        if bound >= window.start:
            return True
        return scan is not None and scan.failure is None and scan.start <= bound and scan.end == window.start

    def _too_far(self, condition: Condition, span: Span) -> str:
        limit = format_size_bytes(self._config.now.conditions.scan_max_bytes)
        return (
            f"the records from offset {condition.bound(span.start)} to {span.end} would have to be searched for the "
            f"latest record of a key, and are more than {limit} (broker.conditions.scan_max_bytes): read the "
            "partition to its end, and send the offset behind it in header logboom-read-to"
        )

    def settled(self) -> None:
        """The batches that were `ready` are in the log, or refused."""
        self._scan, self._deciding = None, False
        window = self._window
        assert window is not None
        window.trim()
        self._memory.used(self, window.size_bytes)

    # --- what is appended ---------------------------------------------------------------------------------------

    @property
    def follows(self) -> bool:
        """Whether it is to be told of what is appended."""
        return self._window is not None

    def appended(self, batches: Sequence[Batch], base_offset: Offset) -> None:
        """These batches were staged one behind the other."""
        if not self._deciding and self._is_to_be_forgotten(batches):
            self.forget()
            return
        limit = self._config.now.max_decompressed_bytes
        for buffer, header in batches:
            body = records_body(buffer, 0, header, limit)
            end = Offset(base_offset + header.last_offset_delta + 1)
            self.noted(keyed_records(body, header.records_count), base_offset, end)
            base_offset = end

    def _is_to_be_forgotten(self, batches: Sequence[Batch]) -> bool:
        if self._clock.monotonic_s() - self._used_s > _UNUSED_S:
            return True
        return any(header.records_count > _NOTED_RECORDS_MAX for _, header in batches)

    def noted(self, records: Iterable[KeyedRecord], base_offset: Offset, end: Offset) -> None:
        """A batch of these records was staged, from `base_offset` up to below `end`."""
        window = self._window
        if window is None or window.end != base_offset:
            self.forget()
            return
        for delta, key, has_value, _, _ in records:
            if key is not None:
                window.note(key, base_offset + delta, has_value)
        if window.extend(end) and not self._deciding:
            window.trim()
            self._memory.grown(self, window.size_bytes)

    def written(self) -> None:
        """More of the log can be read, or what was staged is gone."""
        if not self._running:
            self._resume()

    def forget(self) -> None:
        """What was remembered may not be so any more, or nobody asks for it."""
        self._window = self._scan = None
        self._running = self._deciding = False
        self._memory.released(self)

    def _current_window(self) -> KeyWindow:
        window, end = self._window, self._log.log_end_offset
        if window is None or window.end != end:
            self.forget()
            window = self._window = KeyWindow(end, self._memory.window_limit_bytes)
        return window

    # --- reading ------------------------------------------------------------------------------------------------

    def _begin_scan(self, unknown: dict[bytes, Offset], end: Offset) -> None:
        config, window_bytes = self._config.now, self._memory.window_limit_bytes
        limits = ScanLimits(config.conditions.scan_max_bytes, window_bytes // 2, config.max_decompressed_bytes)
        starts, written_end = sorted(set(unknown.values())), self._log.written_end
        scan = ConditionScan(self._log.reader, starts, end, written_end, frozenset(unknown), limits)
        self._scan, self._running = scan, True
        self._memory.released(self)  # until it is done its window stays, whatever others need
        self._go_on(scan)

    def _go_on(self, scan: ConditionScan) -> None:
        self._read_soon(scan.read_slice).add_done_callback(partial(self._slice_ended, scan))

    def _slice_ended(self, scan: ConditionScan, future: "asyncio.Future[bool]") -> None:
        error = None if future.cancelled() else future.exception()
        if self._scan is not scan or future.cancelled():
            return
        if error is None and not future.result():
            self._go_on(scan)
            return
        self._running = False
        self._counters.conditions_scanned_bytes += scan.read_bytes
        if isinstance(error, OffsetOutOfRangeError):
            self._scan = None  # the log begins later now: what there is to read is looked for again
        elif error is not None:
            scan.failure = error if isinstance(error, LogboomError) else StorageError(f"The log was not read: {error}.")
        elif scan.keys is not None and self._window is not None:
            self._window.begin_at(scan.start, scan.keys)
        self._resume()
