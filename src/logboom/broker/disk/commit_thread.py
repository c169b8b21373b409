"""The thread of a log dir that writes and syncs, and runs everything else that changes a log's files.

It takes all rounds that were handed over while it was busy as one, flushes each log of it, and tells the loop of the
whole with one call: the more arrives, the more one sync carries. A job keeps its place in line. Waiting for the disk is
all it does; which log is flushed when, and who is told, is the flusher's.
"""

import asyncio
from collections.abc import Callable, Iterable
from queue import Empty
from typing import Any, Final, NamedTuple, TypeAlias

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError, RetriableStorageError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import Mailbox
from logboom.broker.disk.failure import LogDirFailure
from logboom.broker.group_commit import FlushTarget
from logboom.broker.metrics import Counters
from logboom.broker.runtime import Runtime

LANES_FROM: Final = 3
"""Fewer logs than this are synced one after the other: waking helpers would cost what they save."""
ROUND_MAX: Final = 64
"""After so many logs the loop is told of those that are done, so that they do not wait for a thousand others."""

Outcome: TypeAlias = tuple[FlushTarget, Offset | LogboomError]
"""A log that was flushed, and its safe end or what went wrong."""


class Round(NamedTuple):
    """What was staged in one turn of the loop."""

    targets: Iterable[FlushTarget]
    size_bytes: int


class Job:
    """A function to run between rounds, and the future of its result."""

    __slots__ = ("function", "future")

    def __init__(self, function: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.function = function
        self.future = future


class CommitThread:
    """See the module. Life: made on the loop, which it calls back; `stop` ends it after all that was put before."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        threads: int,
        failure: LogDirFailure,
        counters: Counters,
        log: FilteringBoundLogger,
        deliver: Callable[[list[Outcome], int], None],
    ) -> None:
        self.blocked: set[FlushTarget] = set()
        """Logs that are not flushed because a flush failed: added here, discarded on the loop once the target has
        taken back what it had staged."""
        self._loop = asyncio.get_running_loop()
        self._clock = runtime.clock
        self._failure = failure
        self._counters = counters
        self._log = log
        self._deliver = deliver
        self._mailbox: Mailbox[Round | Job | None] = runtime.workers.mailbox()
        self._caught_up: Mailbox[None] = runtime.workers.mailbox()
        self._busy_since_ns = 0
        self._lanes_max = threads
        self._helpers = runtime.workers.pool("flush", threads)
        self._thread = runtime.workers.thread("flusher", self._run)

    @property
    def busy_s(self) -> float:
        """How long it has been at the round or job in its hands; 0 where it waits for one."""
        since_ns = self._busy_since_ns
        return (self._clock.monotonic_ns() - since_ns) / 1e9 if since_ns else 0.0

    def put(self, item: Round | Job) -> None:
        """Hand over a round, whose outcomes go to `deliver`, or a job, whose result goes to its future."""
        self._mailbox.put(item)

    async def stop(self, timeout_s: float) -> None:
        """End it after all that was put before, which is given so much time."""
        self._mailbox.put(None)
        await self._loop.run_in_executor(None, self._thread.join, timeout_s)
        self._helpers.shutdown(wait=False)

    # --- on the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            targets, size_bytes, job, last = self._take()
            for start in range(0, len(targets), ROUND_MAX):
                ended = start + ROUND_MAX >= len(targets)
                self._flush_round(targets[start : start + ROUND_MAX], size_bytes if ended else 0)
            if job is not None:
                self._wait_for_loop()
                self._busy_since_ns = self._clock.monotonic_ns()
                self._run_job(job)
            self._busy_since_ns = 0
            if last:
                return

    def _take(self) -> tuple[list[FlushTarget], int, Job | None, bool]:
        """Wait for something, then take everything that is there, up to the first job."""
        targets: dict[FlushTarget, None] = {}
        size_bytes = 0
        item = self._mailbox.get()
        try:
            while True:
                if item is None:
                    return list(targets), size_bytes, None, True
                if isinstance(item, Job):
                    return list(targets), size_bytes, item, False
                targets.update(dict.fromkeys(item.targets))
                size_bytes += item.size_bytes
                item = self._mailbox.get_nowait()
        except Empty:
            return list(targets), size_bytes, None, False

    def _flush_round(self, targets: list[FlushTarget], size_bytes: int) -> None:
        self._busy_since_ns = started_ns = self._clock.monotonic_ns()
        outcomes = self._flush_all([target for target in targets if target not in self.blocked])
        self._counters.flush_rounds += 1
        self._counters.flushed_partitions += len(outcomes)
        self._counters.flush_ns += self._clock.monotonic_ns() - started_ns
        self._loop.call_soon_threadsafe(self._deliver, outcomes, size_bytes)

    def _flush_all(self, targets: list[FlushTarget]) -> list[Outcome]:
        """Flush each; many share the helpers, since syncs of several files at once cost little more than one."""
        lanes = min(len(targets), self._lanes_max)
        if lanes < LANES_FROM:
            return self._flush_lane(targets)
        helped = [self._helpers.submit(self._flush_lane, targets[lane::lanes]) for lane in range(1, lanes)]
        outcomes = self._flush_lane(targets[::lanes])
        for lane in helped:
            outcomes += lane.result()
        return outcomes

    def _flush_lane(self, targets: list[FlushTarget]) -> list[Outcome]:
        return [(target, self._flush(target)) for target in targets]

    def _flush(self, target: FlushTarget) -> Offset | LogboomError:
        error: LogboomError
        if self._failure.error is not None:
            error = self._failure.error
        else:
            try:
                return target.log.flush(sync=target.syncs)
            except RetriableStorageError as lack:
                error = lack
            except (StorageError, OSError) as fault:
                error = self._failure.report(fault)
            except Exception as fault:  # noqa: BLE001 - the outermost loop of this thread: a bug of ours stops one log
                self._log.error("a flush failed by a fault in Logboom", exc_info=fault)
                error = fault_error(fault)
        self.blocked.add(target)
        return error

    def _wait_for_loop(self) -> None:
        """Return once the targets of failed flushes have taken back what they had staged.

        They do so on the loop and under the log's lock, for which the loop would wait as long as a job of that log
        holds it; on a disk that hangs that is for ever. Nor may a job write what is about to be taken back.
        """
        if self.blocked:
            self._loop.call_soon_threadsafe(self._caught_up.put, None)
            self._caught_up.get()

    def _run_job(self, job: Job) -> None:
        result: Any = None
        error: StorageError | None = None
        try:
            result = job.function()
        except RetriableStorageError as lack:
            error = lack
        except (StorageError, OSError) as fault:
            error = self._failure.report(fault)
        except Exception as fault:  # noqa: BLE001 - the outermost loop of this thread: the caller gets it
            self._loop.call_soon_threadsafe(_settle, job.future, None, fault)
            return
        self._loop.call_soon_threadsafe(_settle, job.future, result, error)


def fault_error(fault: Exception) -> StorageError:
    """What clients are told of a bug that stopped their partition."""
    return StorageError(f"a fault in Logboom stopped this partition: {fault!r}")


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
