"""Background work: checkpoints, syncs for streams whose acks do not wait for one, retention, and the disk's watch.

Knows when something is due. The log knows how, and the flusher's thread does it: one partition at a time, so that acks
do not queue behind a thousand jobs. Each function runs until it is cancelled or, where it writes, the log dir fails.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current
from logboom.base.errors import LogboomError, StorageError
from logboom.broker.config import BrokerConfig
from logboom.broker.disk.flusher import Flusher
from logboom.broker.partition.replica import Partition

LOOKS_PER_HANG: Final = 4
"""How often the disk is checked within `disk_hang_s`, after which it counts as hanging."""

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

    async def over(self) -> None:
        """Return when it is over."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while (left_s := began_s + self.length_s - loop.time()) > 0:
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
            if not partition.offline and done.get(partition) != end:
                await deferred.run(flusher, partition, partition.log.checkpoint)
                partition.reads.load_index_soon()
            now[partition] = -1 if behind else end
        deferred.report(log)
        done = now


async def background_syncs(partitions: Partitions, flusher: Flusher, pause: Pause, log: FilteringBoundLogger) -> None:
    """Sync the logs whose acks do not wait for it."""
    while flusher.failure is None:
        await pause.over()
        deferred = _Deferred()
        for partition in partitions():
            behind = partition.log.durable_end < partition.log.written_end
            if behind and not partition.syncs and not partition.offline:
                # What is staged meanwhile goes along; its waiters are answered by its own flush.
                await deferred.run(flusher, partition, partial(partition.log.flush, sync=True))
        deferred.report(log)


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
                log.error("the disk hangs: what was asked of it waits", seconds=round(stalled_s, 1))
            logged = True
        elif logged:
            log.info("the disk answers again")
            logged = False


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
