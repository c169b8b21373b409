"""Background work: checkpoints, syncs for streams whose acks do not wait for one, retention, and the disk's watch.

Knows when something is due. The log knows how, and the flusher's thread does it: one partition at a time, so that acks
do not queue behind a thousand jobs. Each function runs until it is cancelled or, where it writes, the log dir fails.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current
from logboom.base.errors import LogboomError, StorageError
from logboom.base.units import SECOND_MS
from logboom.broker.config import BrokerConfig
from logboom.broker.disk.flusher import Flusher
from logboom.broker.partition.replica import Partition
from logboom.metadata import INT64_MAX, Flush

LOOKS_PER_HANG: Final = 4
"""How often the disk is checked within `disk_hang_s`, after which it counts as hanging."""

_SYNCS_APART_MIN_S: Final = 0.01
"""`flush.ms` is kept to this much; where it is 0, every append is synced and none waits for the next look."""

Partitions = Callable[[], Iterable[Partition]]
Work: TypeAlias = "Callable[[Partitions, Flusher, Pause, FilteringBoundLogger], Coroutine[Any, Any, None]]"


class Pause:
    """The wait between two rounds of background work. A change of its setting takes effect while it lasts."""

    def __init__(self, config: Current[BrokerConfig], length_s: Callable[[BrokerConfig], float]) -> None:
        self._config = config
        self._length_s = length_s
        self._changed = asyncio.Event()
        config.subscribe(lambda _: self._changed.set())

    @property
    def length_s(self) -> float:
        """Its length by the settings in force."""
        return self._length_s(self._config.now)

    async def over(self, *, most_s: float = math.inf) -> None:
        """Return when it is over, or after `most_s` where that is less."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while (left_s := began_s + min(self.length_s, most_s) - loop.time()) > 0:
            self._changed.clear()
            # Not `wait_for`: up to Python 3.11 it loses a cancellation that comes in the turn in which the event was
            # set. A stop right after a change of settings then waited for this task until its next round.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()


async def checkpoints(partitions: Partitions, flusher: Flusher, pause: Pause, log: FilteringBoundLogger) -> None:
    """Make the state from which recovery starts survive a power failure, for each log that grew since the last time."""
    done: dict[Partition, int] = {partition: partition.log.durable_end for partition in partitions()}
    while flusher.failure is None:
        await pause.over()
        now: dict[Partition, int] = {}
        deferred = _Deferred()
        for partition in partitions():
            end = partition.log.durable_end
            # After a start the index is not in memory until something reads. The flusher's thread does not read it, or
            # a read that hangs would hold up every append; so a reader does, and the next round saves it.
            behind = partition.log.reader.index_is_behind
            # Of one that was made since the last round and is empty still, everything was noted when it was made.
            if not partition.offline and done.get(partition, 0) != end:
                await deferred.run(flusher, partition, partition.log.checkpoint)
                partition.reads.load_index_soon()
            now[partition] = -1 if behind else end
        deferred.report(log)
        done = now


async def background_syncs(partitions: Partitions, flusher: Flusher, pause: Pause, log: FilteringBoundLogger) -> None:
    """Sync the logs whose acks do not wait for it: each after the pause, or after the stream's `flush.ms`."""
    loop = asyncio.get_running_loop()
    synced_s: dict[Partition, float] = {}
    while flusher.failure is None:
        most_s = min((_unsynced_s_max(partition) for partition in _acked_unsynced(partitions)), default=math.inf)
        await pause.over(most_s=max(most_s, _SYNCS_APART_MIN_S))
        now_s, deferred = loop.time(), _Deferred()
        last_s, synced_s = synced_s, {}
        for partition in tuple(_acked_unsynced(partitions)):
            wait_s = min(pause.length_s, _unsynced_s_max(partition))
            # A log that another's shorter time has us look at keeps its own rhythm.
            due = now_s - last_s.get(partition, -math.inf) >= wait_s
            synced_s[partition] = now_s if due else last_s[partition]
            if due and _waits_for_sync(partition) and not partition.offline:
                # What is staged meanwhile goes along; its waiters are answered by its own flush.
                await deferred.run(flusher, partition, partial(partition.log.flush, sync=True))
        deferred.report(log)


def _waits_for_sync(partition: Partition) -> bool:
    """Whether records are written and not synced whose acks did not wait for that."""
    return partition.log.durable_end < partition.log.written_end


def _acked_unsynced(partitions: Partitions) -> Iterator[Partition]:
    """Those whose acks do not wait for a sync: mostly few or none of thousands that are looked at every second."""
    return (partition for partition in partitions() if partition.config.flush is not Flush.COMMIT)


def _unsynced_s_max(partition: Partition) -> float:
    """How long a record may wait for a sync by the stream's own settings. With a `flush.ms` of 0 none does."""
    flush_ms = partition.config.flush_ms
    return math.inf if flush_ms in (0, INT64_MAX) else flush_ms / SECOND_MS


async def retention(partitions: Partitions, flusher: Flusher, pause: Pause, log: FilteringBoundLogger) -> None:
    """Delete old segments that streams need no longer keep."""
    while flusher.failure is None:
        await pause.over()
        for partition in partitions():
            if partition.offline:
                continue
            # One partition at a time: each asks the flusher's thread to move its start, and acks wait behind that.
            try:
                gone = await partition.deletion.enforce_retention(partition.config)
            except LogboomError as error:  # also where the stream was deleted meanwhile
                log.warning("retention postponed", partition=str(partition), reason=str(error))
                continue
            if gone:
                start = partition.log_start_offset
                log.info("old segments deleted", partition=str(partition), segments=gone, log_start_offset=start)


async def watch_disk_stall(busy_s: Callable[[], float], pause: Pause, log: FilteringBoundLogger) -> None:
    """Log, once, that the disk hangs, and that it answers again. `busy_s`: how long it has not answered.

    Nothing fails on a disk that hangs, so no error reports it. Each pause is a fraction of the time after which it
    counts as hanging.
    """
    logged = False
    while True:
        await pause.over()
        stalled_s = busy_s()
        if stalled_s >= LOOKS_PER_HANG * pause.length_s:
            if not logged:
                log.error("the disk hangs: reads and writes wait for it", seconds=round(stalled_s, 1))
            logged = True
        elif logged:
            log.info("the disk answers again")
            logged = False


async def watch_wall_clock(held_back_ms: Callable[[], int], pause: Pause, log: FilteringBoundLogger) -> None:
    """Log, once, that nothing ages by the wall clock, and that everything does again. `held_back_ms`: how far the time
    by which it ages is behind."""
    logged = False
    while True:
        await pause.over()
        held_ms = held_back_ms()
        if held_ms and not logged:
            log.warning(
                "the wall clock is not believed: it jumped forward, or is ahead of the other brokers' clocks",
                seconds=round(held_ms / SECOND_MS),
            )
        elif logged and not held_ms:
            log.info("the wall clock is believed again")
        logged = held_ms > 0


class _Deferred:
    """What one round could not do, in one log line however many partitions there are.

    A disk that failed is reported by the flusher; a full one may have room the next time.
    """

    def __init__(self) -> None:
        self._partitions: list[str] = []
        self._reason = ""

    async def run(self, flusher: Flusher, partition: Partition, work: Callable[[], Any]) -> None:
        try:
            await flusher.run(work)
        except StorageError as error:
            self._partitions.append(str(partition))
            self._reason = self._reason or str(error)

    def report(self, log: FilteringBoundLogger) -> None:
        if self._partitions:
            log.warning(
                "background write postponed",
                partition=self._partitions[0],
                more=len(self._partitions) - 1,
                reason=self._reason,
            )
