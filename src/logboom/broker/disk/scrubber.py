"""Reads and checks everything durable in every log, over and over, in the background: one log at a time, slowly.

A bit that flips on a disk is found when its batch is read, and old ones may be read by nobody for years, until the
other copies are damaged too or gone. So each pass reads all logs, spread over `broker.scrubber.interval_ms`. What is
damaged is reported as if a consumer had met it: where other brokers have the records the copy is fetched again
(`lost_replicas`), else the damaged offsets answer with an error and the rest is served. The metadata's own log comes
last in a pass. What is damaged there harms nothing while this process has it in memory, but the next start would refuse
it; so it is reported while the other brokers can still do without this one.

    timetable   this many bytes of all are due at this moment of the pass; behind it, as fast as the limit allows
    stretch     (thread) a part of a segment is read from the disk and checked (`storage.scrubbing`)
    position    noted in a file now and then, so that a broker that is restarted often gets through its logs, too

A log takes its turn in the order of its stream's id. One that is made while a pass runs waits for the next pass; so
what is written today was checked at the latest two intervals from now.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Final, Protocol
from uuid import UUID

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current
from logboom.base.errors import LogboomError
from logboom.base.ids import Offset, PartitionIndex, StreamId
from logboom.base.ports import Disk
from logboom.base.units import DAY_MS, KIB, SECOND_MS
from logboom.broker.config import BrokerConfig
from logboom.broker.disk.data_dir import SCRUB_FILE
from logboom.broker.disk.flusher import Flusher
from logboom.broker.disk.maintenance import Pause
from logboom.broker.metrics import Counters
from logboom.broker.partition.reader_threads import ReaderThreads
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import ReplicaKey
from logboom.broker.runtime import Runtime
from logboom.storage import frame, read_whole, replace_whole, unframe

_STRETCH_BYTES: Final = 256 * KIB
"""Read and checked at once. Small batches of this many bytes keep the interpreter for some milliseconds."""
_SAVE_EVERY_S: Final = 60.0
_RETRY_S: Final = 60.0
_LOOK_AGAIN_S: Final = DAY_MS / SECOND_MS
_TAG: Final = b"LBSC"
_VERSION: Final = 1
_FORM: Final = Struct(">qq16siq")  # pass began, last pass ended (ms), stream, partition, offset
_START: Final = Offset(0)
_FIRST: Final = (StreamId(UUID(int=0)), PartitionIndex(0))


@dataclass(slots=True)
class ScrubState:
    """How far scrubbing is."""

    began_ms: int
    """When the pass that is under way began."""
    last_ended_ms: int = 0
    """When the last whole pass ended; 0 where there was none."""
    key: ReplicaKey = _FIRST
    """The log whose turn it is, or was last."""
    offset: Offset = _START
    """Everything in it below this was checked."""
    total_bytes: int = 0
    """Of all logs, when the pass began or was taken up again."""
    done_bytes: int = 0
    """How many of them were read, or were before `key` when the pass was taken up again."""

    @property
    def done_ratio(self) -> float:
        """The share of the pass that is done."""
        return min(self.done_bytes / self.total_bytes, 1.0) if self.total_bytes else 0.0

    def pack(self) -> bytes:
        """As it is saved."""
        stream, index = self.key
        return _FORM.pack(self.began_ms, self.last_ended_ms, stream.bytes, index, self.offset)


def load(disk: Disk, now_ms: int) -> ScrubState:
    """What was saved last; a pass that begins now where that is nothing, or cannot be read."""
    payload = None
    with contextlib.suppress(OSError):
        payload = unframe(_TAG, _VERSION, read_whole(disk, SCRUB_FILE) or b"")
    if payload is None or len(payload) != _FORM.size:
        return ScrubState(now_ms)
    began_ms, last_ended_ms, stream, index, offset = _FORM.unpack(payload)
    # A clock that was ahead then must not put the next pass off until it is that late.
    key = StreamId(UUID(bytes=stream)), PartitionIndex(index)
    return ScrubState(min(began_ms, now_ms), min(last_ended_ms, now_ms), key, Offset(offset))


class Partitions(Protocol):
    """Those of this broker."""

    def __iter__(self) -> Iterator[Partition]:
        """All that are open."""

    def find_by_id(self, stream_id: StreamId, index: int) -> Partition:
        """One of them. Raises LogboomError where it is not here."""


class Scrubber:
    """See the module. Life: made, `run` as a task until that is cancelled, `stop`. On the loop."""

    def __init__(
        self,
        partitions: Partitions,
        disk: Disk,
        flusher: Flusher,
        config: Current[BrokerConfig],
        *,
        check_metadata: Callable[[], list[str]],
        runtime: Runtime,
        counters: Counters,
        log: FilteringBoundLogger,
    ) -> None:
        """`check_metadata` reads the metadata's files, on a thread: what of them is damaged."""
        self.state = ScrubState(0)
        self._check_metadata = check_metadata
        self._partitions = partitions
        self._disk = disk
        self._flusher = flusher
        self._config = config
        self._clock = runtime.clock
        self._counters = counters
        self._log = log
        self._thread = ReaderThreads(runtime.workers.pool("scrub", 1), runtime.clock)
        self._pause = Pause(config, self._left_s)
        self._began_s = self._last_read_s = 0.0
        self._next_bytes = 0
        self._saved_s = math.inf  # the position is not known yet

    async def run(self) -> None:
        """Scrub for ever. Returns where the log dir failed."""
        self.state = await self._thread.run(partial(load, self._disk, self._clock.wall_ms()))
        self._saved_s = self._clock.monotonic_s()
        while self._flusher.failure is None:
            await self._pass()

    async def stop(self) -> None:
        """Note how far it is."""
        if self._saved_s < math.inf and self._flusher.failure is None:
            await self._save()
        self._thread.shutdown()

    async def _pass(self) -> None:
        """Go on with the pass that is under way to its end, and begin the next one."""
        state, damages = self.state, self._counters.scrub_damages
        self._began_s = self._clock.monotonic_s() - (self._clock.wall_ms() - state.began_ms) / SECOND_MS
        logs = sorted((_key_of(one), one.log.size_bytes) for one in self._partitions)
        before = [size for key, size in logs if key < state.key]
        state.total_bytes, state.done_bytes = sum(size for _, size in logs), sum(before)
        for key, size_bytes in logs[len(before) :]:
            done_bytes = state.done_bytes + size_bytes
            await self._scrub(key)
            if self._flusher.failure is not None:
                return
            state.done_bytes = done_bytes  # what was written or deleted meanwhile does not shift the others
        await self._scrub_metadata()
        await self._turn(0)
        now_ms = self._clock.wall_ms()
        self._log.info(
            "all logs were read and checked",
            logs=len(logs),
            size_bytes=state.total_bytes,
            damages=self._counters.scrub_damages - damages,
            seconds=round(max(now_ms - state.began_ms, 0) / SECOND_MS),
        )
        self.state = ScrubState(now_ms, last_ended_ms=now_ms)
        await self._save()

    async def _scrub_metadata(self) -> None:
        try:
            damages = await self._thread.run(self._check_metadata)
        except OSError as error:
            self._log.warning("scrubbing postponed", partition="the metadata", reason=str(error))
            return
        self._counters.scrub_damages += len(damages)
        for damage in damages:
            self._log.error("the metadata on this broker's disk is damaged", reason=damage)

    async def _scrub(self, key: ReplicaKey) -> None:
        """One log, from where the pass has come to in it."""
        state = self.state
        with contextlib.suppress(LogboomError):  # it is not here any more
            partition = self._partitions.find_by_id(*key)
            log = partition.log
            scrub = log.reader.scrub(state.offset if key == state.key else _START)
            state.key, state.offset = key, scrub.offset
            while max(scrub.offset, log.log_start_offset) < min(partition.high_watermark, log.durable_end):
                await self._turn(min(_STRETCH_BYTES, scrub.next_bytes))
                if self._flusher.failure is not None:
                    return
                check = partial(scrub.check_next, partition.high_watermark, _STRETCH_BYTES)
                try:
                    found = await partition.reads.on_threads(self._thread, check)
                except OSError as error:
                    self._log.warning("scrubbing postponed", partition=str(partition), reason=str(error))
                    await asyncio.sleep(_RETRY_S)
                    continue
                self._counters.scrubbed_bytes += found.size_bytes
                self._counters.scrub_damages += found.damages
                state.offset = scrub.offset
                state.done_bytes += found.size_bytes
                if self._last_read_s - self._saved_s >= _SAVE_EVERY_S:
                    await self._save()

    # --- the timetable ----------------------------------------------------------------------------------------------

    async def _turn(self, size_bytes: int) -> None:
        """Return when the next this many bytes are due; with 0, when the pass is over."""
        self._next_bytes = size_bytes
        while self._left_s(self._config.now) > 0:
            await self._pause.over(most_s=_LOOK_AGAIN_S)
        self._last_read_s = self._clock.monotonic_s()

    def _left_s(self, config: BrokerConfig) -> float:
        settings, size_bytes, state = config.scrubber, self._next_bytes, self.state
        if settings.interval_ms is None:
            return math.inf
        is_over = not (size_bytes and state.total_bytes)
        share = 1.0 if is_over else min((state.done_bytes + size_bytes) / state.total_bytes, 1.0)
        due_s = self._began_s + share * settings.interval_ms / SECOND_MS
        allowed_s = self._last_read_s + size_bytes / settings.max_io_bytes_per_s
        return max(due_s, allowed_s) - self._clock.monotonic_s()

    async def _save(self) -> None:
        self._saved_s = self._clock.monotonic_s()
        data = frame(_TAG, _VERSION, self.state.pack())
        with contextlib.suppress(OSError):  # an older position costs reading something once more
            await self._thread.run(partial(replace_whole, self._disk, ".", SCRUB_FILE, data, sync=False))


def _key_of(partition: Partition) -> ReplicaKey:
    return partition.stream.id, partition.index
